/* errors.c: what the errors of a server mean. The first word of an error is for programs, the rest
 * for people. */
#include "base/text.h"
#include "engines/holdfast/store.h"

#include <stdio.h>
#include <string.h>

#define WORDS_MAX 400    /* bytes of a server's words, in ours */
#define HALF_DIGIT_MS 50 /* text_from_ms cuts off what is less than 100 */

struct refusal {
    const char *word;
    int code;
    const char *words; /* NULL: the server's own will do */
};

static const struct refusal refusals[] = {
    {"ENDED", HF_ELOST, "this lease is over"},
    {"MODE", HF_EMODE, NULL},
    {"LIMIT", HF_EREFUSED, NULL},
    {"QUOTA", HF_EREFUSED, NULL},
    {"STALE", HF_ESTALE, NULL},
    {"NOBACKUP", HF_ELOST, NULL},
    {"UNKNOWN", HF_EUNKNOWN, "the answer was lost: it may or may not have taken effect"},
    {"NOAUTH", HF_EREFUSED,
     "it needs a password (of 'default', unless the URL names a user: holdfast://USER@...): give "
     "it in the URL, in ?password-file=, in HOLDFAST_PASSWORD, or with "
     "the url in client.conf"},
    {"WRONGPASS", HF_EREFUSED, "it does not accept this user and password"},
    {"NOPROTO", HF_EREFUSED, "it does not speak RESP3: is it a holdfastd?"},
    {"STOPPED", HF_EUNREACH, NULL},
    {"TRYAGAIN", HF_EUNREACH, NULL},
    {"NOREPLY", HF_EUNREACH, NULL},
    {"MOVED", HF_EUNREACH, "it does not lead, and its leader could not be reached"},
};

/* Of a server that has none: somebody who has set one for another server may not remember where. */
static const char no_password[] = "this server has no password";

/* Bytes of the first word of an error. */
static size_t word_size(const struct resp_node *reply)
{
    const char *blank = memchr(reply->text, ' ', reply->size);

    return blank ? (size_t)(blank - reply->text) : reply->size;
}

static bool word_is(const struct resp_node *reply, const char *word)
{
    return word_size(reply) == strlen(word) && memcmp(reply->text, word, strlen(word)) == 0;
}

int reply_error(const struct address *at, const struct resp_node *reply, struct error_text *err)
{
    const char *text = reply->text;
    size_t size = reply->size;

    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refusal *refusal = &refusals[i];
        size_t skip = word_size(reply) + 1;

        if (!word_is(reply, refusal->word))
            continue;
        if (refusal->words)
            return error_set(err, refusal->code, "%s: %s", at->shown, refusal->words);
        if (skip < size)
            text += skip, size -= skip;
        return error_set(err, refusal->code, "%s: %.*s", at->shown,
                         (int)(size < WORDS_MAX ? size : WORDS_MAX), text);
    }
    return error_set(err, HF_EREFUSED, "%s refuses: %.*s%s", at->shown,
                     (int)(size < WORDS_MAX ? size : WORDS_MAX), text,
                     memmem(text, size, no_password, sizeof no_password - 1)
                         ? " (a user and a password come from the URL, ?password-file=, "
                           "HOLDFAST_PASSWORD, or with the url from client.conf)"
                         : "");
}

/* What nodes say after TRYAGAIN that could not serve if there were a leader; the others wait for one. */
static const struct {
    const char *words;
    enum said said;
} idle[] = {
    {"belongs to no cluster yet", SAID_WAITS},
    {"know this node with other data", SAID_SHUT_OUT},
    {"was removed from the cluster", SAID_SHUT_OUT},
    {"is a member of a cluster already", SAID_SHUT_OUT},
};

enum said reply_tells(const struct resp_node *reply)
{
    if (word_is(reply, "STOPPED"))
        return SAID_STOPPED;
    for (size_t i = 0; word_is(reply, "TRYAGAIN") && i < sizeof idle / sizeof *idle; i++)
        if (memmem(reply->text, reply->size, idle[i].words, strlen(idle[i].words)))
            return idle[i].said;
    return SAID_NO_LEADER;
}

/* "MOVED 0 host:port" */
static bool read_moved(const struct resp_node *reply, struct address *ret_moved)
{
    size_t skip = word_size(reply) + 1;
    const char *at = reply->text + skip, *end = reply->text + reply->size, *blank;
    struct error_text ignored;

    blank = skip < reply->size ? memchr(at, ' ', (size_t)(end - at)) : NULL;
    if (!blank)
        return false;
    at = blank + 1;
    return *at != '/' && *at != '%' &&
           address_parse(at, (size_t)(end - at), HOLDFAST_PORT, ret_moved, &ignored) == HF_OK;
}

bool reply_is_elsewhere(const struct resp_node *reply, struct address *ret_moved)
{
    if (word_is(reply, "MOVED")) {
        read_moved(reply, ret_moved);
        return true;
    }
    return word_is(reply, "TRYAGAIN") || word_is(reply, "STOPPED");
}

/* One that hangs tells more than that others are away. */
static const struct probe *find_mute(const struct engine_store *store)
{
    LIST_EACH(node, &store->probes)
    {
        const struct probe *probe = LIST_ENTRY(node, struct probe, node);

        if (probe->mute)
            return probe;
    }
    return NULL;
}

void add_all_servers(const struct engine_store *store, struct error_text *err)
{
    size_t size = strlen(err->text);

    if (store->server_count < 2)
        return;
    for (int i = 0; i < store->server_count && size < sizeof err->text; i++)
        size += (size_t)snprintf(err->text + size, sizeof err->text - size, "%s%s",
                                 i ? ", " : " (none could be reached of ", store->servers[i].shown);
    if (size < sizeof err->text)
        snprintf(err->text + size, sizeof err->text - size, ")");
}

void not_reached_words(const struct engine_store *store, int64_t lasted_ms,
                       struct error_text *ret_why)
{
    bool waited_less = store->timeout_ms != HOLDFAST_TIMEOUT_MS && lasted_ms < store->timeout_ms;
    const struct probe *mute = find_mute(store);
    char span[TEXT_SPAN_MAX];

    text_from_ms(lasted_ms + HALF_DIGIT_MS, span);
    if (mute) {
        error_write(ret_why,
                    "%s takes connections, and has not answered within %s: is it stopped, or "
                    "stuck%s",
                    mute->at.shown, span, waited_less ? "?" : "? ?timeout= in the URL allows more");
    } else {
        error_write(ret_why, "%s could not be reached within %s%s", store->servers[0].shown, span,
                    waited_less ? "" : ": ?timeout= in the URL allows more");
        add_all_servers(store, ret_why);
    }
}
