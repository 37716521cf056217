#include "engines/redis/scripts.h"
#include "base/sha1.h"
#include "base/text.h"

#include <redis-scripts.h> /* made by tools/embed */

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define SCRIPT_BYTES_MAX 16384
#define KEYS 8

struct script {
    const char *quick; /* what can be decided without common.lua; or NULL */
    const char *body;
    char text[SCRIPT_BYTES_MAX]; /* all of it */
    size_t size;
    char sha[2 * SHA1_SIZE + 1];
};

static struct script scripts[SCRIPT_COUNT] = {
    [SCRIPT_ACQUIRE] = {.quick = script_text_acquire_quick, .body = script_text_acquire},
    [SCRIPT_RELEASE] = {.quick = script_text_release_quick, .body = script_text_release},
    [SCRIPT_ABANDON] = {.body = script_text_abandon},
    [SCRIPT_RENEW] = {.body = script_text_renew},
    [SCRIPT_SHOW] = {.body = script_text_show},
    [SCRIPT_CHECK] = {.body = script_text_check},
    [SCRIPT_BREAK] = {.body = script_text_break},
    [SCRIPT_FLOOR] = {.body = script_text_floor},
    [SCRIPT_VOTE] = {.body = script_text_vote},
    [SCRIPT_SEAL] = {.body = script_text_seal},
    [SCRIPT_REFILL] = {.body = script_text_refill},
};

static void put_together(void)
{
    for (size_t i = SCRIPT_NONE + 1; i < SCRIPT_COUNT; i++) {
        struct script *script = &scripts[i];
        unsigned char digest[SHA1_SIZE];
        int size = snprintf(script->text, sizeof script->text, "%s%s%s%s", script_text_keys,
                            script->quick ? script->quick : "", script_text_common, script->body);

        INVARIANT(size > 0 && (size_t)size < sizeof script->text);
        script->size = (size_t)size;
        sha1(script->text, script->size, digest);
        text_hex(digest, sizeof digest, script->sha);
    }
}

static const struct script *script_get(enum script_id id)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, put_together);
    return &scripts[id];
}

const char *script_text(enum script_id id)
{
    return script_get(id)->text;
}

const char *script_sha(enum script_id id)
{
    return script_get(id)->sha;
}

/* The order is that of KEYS in common.lua. */
static const char *const labels[KEYS] = {
    "",
    SCRIPT_KEY_RESERVED "info:",
    SCRIPT_KEY_RESERVED "wait:",
    SCRIPT_KEY_RESERVED "due:",
    SCRIPT_KEY_RESERVED "members:",
    SCRIPT_KEY_RESERVED "turn:",
    SCRIPT_KEY_RESERVED "token:",
    SCRIPT_KEY_RESERVED "ended:",
};
#define KEY_COUNTER 6 /* one per prefix */
#define KEY_ENDED 7   /* one per lease */

static void write_key(struct resp_writer *writer, const char *label, const char *prefix,
                      const char *rest)
{
    char key[sizeof SCRIPT_KEY_RESERVED + 16 + HF_URL_MAX + HF_NAME_MAX];
    size_t label_size = strlen(label), prefix_size = strlen(prefix), rest_size = strlen(rest);

    INVARIANT(label_size + prefix_size + rest_size <= sizeof key);
    memcpy(key, label, label_size);
    memcpy(key + label_size, prefix, prefix_size);
    memcpy(key + label_size + prefix_size, rest, rest_size);
    resp_write_blob(writer, key, label_size + prefix_size + rest_size);
}

void script_write(struct resp_writer *writer, enum script_id id, bool by_text, const char *prefix,
                  const char *name, const char *lease, size_t arguments)
{
    const struct script *script = script_get(id);

    resp_write_array(writer, 3 + KEYS + arguments);
    if (by_text) {
        resp_write_text(writer, "EVAL");
        resp_write_blob(writer, script->text, script->size);
    } else {
        resp_write_text(writer, "EVALSHA");
        resp_write_blob(writer, script->sha, 2 * SHA1_SIZE);
    }
    resp_write_number(writer, KEYS);
    for (int i = 0; i < KEYS; i++)
        write_key(writer, labels[i], prefix, i == KEY_COUNTER ? "" : i == KEY_ENDED ? lease : name);
}
