/* cmd_query.c: what is read: SHOW, LOCKS, CHECK, ONCE READ, and the beginning of watching. All of it
 * takes its place in the log, and is read when that place is reached: an answer is what a majority
 * would say, and nothing between the answer to OBSERVE and the first push is missed. */
#include "base/sequencer.h"
#include "base/sha256.h"
#include "base/text.h"
#include "session/glob.h"
#include "session/inside.h"

#include <string.h>

#define WAITERS_SHOWN 100u /* by SHOW, unless it is told otherwise */
#define WAITERS_SHOWN_MAX 10000u
#define PAGE_COUNT 100u /* names of a page of LOCKS, unless it is told otherwise */
#define PAGE_COUNT_MAX 1000u
#define PAGE_STEPS 10000u  /* names that one page looks at */
#define HOLDERS_SHOWN 100u /* of one name */
#define DIGEST_BYTES 8
#define ROW_BYTES_MAX (HF_OWNER_MAX + 256) /* of a holder or waiter */
#define MATCH_COST_MAX (4u << 20) /* bytes of names times bytes of the pattern, in one page */
#define ROW_MATCH_COST 400u       /* so much of it takes as long as a row */

enum { HAD_MATCH = 1, HAD_COUNT = 2, HAD_CURSOR = 4, HAD_WAITERS = 8, HAD_MODE = 16 };

/* What writes the answer of each, when its place in the log is reached. */
typedef void read_fn(struct session *session, const struct words *words);
static read_fn read_check, read_show, read_locks, read_observe, read_subscribe;

/* Its words are looked at again when it is read. */
static enum verdict submit_read(struct session *session, const struct resp_node *value,
                                read_fn *read)
{
    struct submission submission = {
        .value = value, .command = {.op = CORE_READ}, .words = value->count, .read = read};

    return submit(session, &submission);
}

/* One whose answer may be long: it is made when those before it are out, of its own session and of others. rows: that it may go through. */
static enum verdict submit_long_read(struct session *session, const struct resp_node *value,
                                     read_fn *read, uint32_t rows)
{
    struct submission submission = {.value = value,
                                    .command = {.op = CORE_READ},
                                    .words = value->count,
                                    .rows = rows,
                                    .read = read};

    if (session->under_way > 0)
        return VERDICT_LATER;
    return session_may_read(session) ? submit(session, &submission) : VERDICT_FULL;
}

/* How many rows fit into an answer that a client who reads slowly is not closed for. */
static uint32_t rows_max(const struct session *session)
{
    return (uint32_t)(session->sessions->max_output_bytes / 2 / ROW_BYTES_MAX);
}

/* ---- CHECK --------------------------------------------------------------------------------------- */

enum verdict command_check(struct session *session, const struct resp_node *value)
{
    struct words_left left = {.session = session, .value = value, .at = 3};
    struct core_text name;
    struct sequencer sequencer;
    struct error_text err;
    uint64_t token;

    if (value->count > 4)
        return refuse(session,
                      "ERR wrong number of arguments: CHECK name token [MODE] | sequencer");
    if (value->count >= 3 &&
        (!parse_name(session, word_at(value, 1), &name) ||
         !parse_number(session, word_at(value, 2), "a token", 1, HF_TOKEN_MAX, &token)))
        return VERDICT_REFUSED;
    if (value->count == 4 && !option_is(&left, "MODE", HAD_MODE) && !option_unknown(&left))
        return VERDICT_REFUSED;
    if (value->count == 2) {
        struct core_text text = word_text(word_at(value, 1));

        if (sequencer_parse(text.bytes, text.size, &sequencer, &err) != HF_OK)
            return refuse(session, "ERR %s", err.text);
    }
    return submit_read(session, value, read_check);
}

static const char *const mode_words[] = {
    [HF_EXCLUSIVE] = "exclusive", [HF_SHARED] = "shared", [HF_PERMIT] = "permit"};

static void read_check(struct session *session, const struct words *words)
{
    const struct core *core = sessions_table(session->sessions);
    struct resp_writer *out = &session->out;
    struct sequencer sequencer;
    struct core_counts counts;
    uint64_t token = 0;

    if (words->count >= 3) {
        int mode;

        text_to_u64(words->word[2].bytes, HF_TOKEN_MAX, &token);
        mode = core_mode_of(core, words->word[1], token);
        if (words->count == 3)
            resp_write_integer(out, mode >= 0);
        else if (mode >= 0)
            resp_write_text(out, mode_words[mode]);
        else
            resp_write_nil(out, session->resp3);
        return;
    }
    core_count(core, &counts);
    if (sequencer_parse(words->word[1].bytes, words->word[1].size, &sequencer, NULL) != HF_OK ||
        strcmp(sequencer.store, counts.id) != 0)
        resp_write_error(out, "STORE this sequencer is of another store");
    else
        resp_write_integer(
            out, core_mode_of(core, (struct core_text){sequencer.name, strlen(sequencer.name)},
                              sequencer.token) == sequencer.mode);
}

/* ---- names, holders, waiters ----------------------------------------------------------------------- */

struct rows {
    struct session *session;
    uint32_t left; /* to be written */
};

static void write_pair(struct resp_writer *out, const char *key, int64_t number)
{
    resp_write_text(out, key);
    resp_write_integer(out, number);
}

/* A holder or a waiter. The lease is its secret: a digest is shown. */
static bool write_claim(void *context, const struct core_claim_view *view)
{
    struct rows *rows = context;
    struct resp_writer *out = &rows->session->out;
    unsigned char digest[SHA256_SIZE];
    char text[2 * DIGEST_BYTES + 1] = "";

    if (rows->left == 0)
        return false;
    rows->left--;
    resp_write_map(out, view->state == CORE_PLACE ? 6 : 7, rows->session->resp3);
    resp_write_text(out, "state");
    resp_write_text(out, view->state == CORE_PLACE  ? "waits"
                         : view->state == CORE_HOLD ? "holds"
                                                    : "withheld");
    resp_write_text(out, "mode");
    resp_write_text(out, mode_words[view->mode]);
    if (view->state != CORE_PLACE)
        write_pair(out, "token", (int64_t)view->number);
    resp_write_text(out, "owner");
    resp_write_blob(out, view->owner.bytes, view->owner.size);
    if (view->lease.size) {
        sha256(view->lease.bytes, view->lease.size, digest);
        text_hex(digest, DIGEST_BYTES, text);
    }
    resp_write_text(out, "lease");
    resp_write_text(out, text);
    write_pair(out, "age_ms", view->age_ms);
    write_pair(out, "left_ms", span_shown(view->left_ms));
    return true;
}

static uint32_t at_most(uint32_t count, uint32_t most)
{
    return count < most ? count : most;
}

/* name, permits, queue, holders, and waiters if any are wanted. */
static void write_lock(struct session *session, const struct core_lock_view *view,
                       uint32_t waiters_wanted)
{
    const struct core *core = sessions_table(session->sessions);
    struct resp_writer *out = &session->out;
    uint32_t holders =
        at_most(at_most(view->holds + view->ghosts, HOLDERS_SHOWN), rows_max(session) / 2);
    uint32_t waiters = at_most(at_most(view->places, waiters_wanted), rows_max(session) / 2);
    struct rows rows = {session, holders};

    resp_write_map(out, waiters_wanted ? 6 : 5, session->resp3);
    resp_write_text(out, "name");
    resp_write_blob(out, view->name.bytes, view->name.size);
    write_pair(out, "permits", view->permits);
    write_pair(out, "holds", view->holds + view->ghosts);
    write_pair(out, "queue", view->places);
    resp_write_text(out, "holders");
    resp_write_array(out, holders);
    core_each_hold(core, view->name, view->once, write_claim, &rows);
    if (!waiters_wanted)
        return;
    resp_write_text(out, "waiters");
    resp_write_array(out, waiters);
    rows.left = waiters;
    core_each_place(core, view->name, view->once, write_claim, &rows);
}

/* ---- SHOW ------------------------------------------------------------------------------------------ */

static bool parse_show(struct session *session, const struct resp_node *value,
                       struct core_text *ret_name, uint64_t *ret_waiters)
{
    struct words_left left = {.session = session, .value = value, .at = 2};

    *ret_waiters = WAITERS_SHOWN;
    if (!parse_name(session, word_at(value, 1), ret_name))
        return false;
    if (option_is(&left, "WAITERS", HAD_WAITERS) &&
        !option_number(&left, "WAITERS", 1, WAITERS_SHOWN_MAX, ret_waiters))
        return false;
    return left.at == value->count || option_unknown(&left);
}

enum verdict command_show(struct session *session, const struct resp_node *value)
{
    struct core_lock_view view = {.places = 0};
    struct core_text name;
    uint64_t waiters;

    if (!parse_show(session, value, &name, &waiters))
        return VERDICT_REFUSED;
    core_find(sessions_table(session->sessions), name, false, &view);
    return submit_long_read(session, value, read_show,
                            1 + at_most(view.holds + view.ghosts, HOLDERS_SHOWN) +
                                at_most(view.places, (uint32_t)waiters));
}

static void read_show(struct session *session, const struct words *words)
{
    struct core_lock_view view = {.name = words->word[1]};
    uint64_t waiters = WAITERS_SHOWN;

    if (words->count == 4)
        text_to_u64(words->word[3].bytes, WAITERS_SHOWN_MAX, &waiters);
    /* A name that nobody uses is shown as just that. */
    core_find(sessions_table(session->sessions), words->word[1], false, &view);
    write_lock(session, &view, (uint32_t)waiters);
}

/* ---- LOCKS ----------------------------------------------------------------------------------------- */

struct page {
    struct session *session;
    struct resp_writer rows; /* written aside, because their number comes before them */
    struct core_text match;
    uint32_t count, most;
    size_t patterns; /* bytes of them: of MATCH, and of what its user may look at */
    size_t cost;     /* of matching */
};

static bool parse_locks(struct session *session, const struct resp_node *value, struct page *page,
                        uint64_t *ret_cursor)
{
    struct words_left left = {.session = session, .value = value, .at = 1};
    uint64_t count = PAGE_COUNT;

    *ret_cursor = 0;
    while (left.at < value->count) {
        if (option_is(&left, "MATCH", HAD_MATCH)) {
            const struct resp_node *word = word_at(value, left.at++);

            if (!word || word->size > HF_NAME_MAX)
                return refuse(session, "ERR MATCH is followed by a pattern of at most %d bytes",
                              HF_NAME_MAX),
                       false;
            page->match = word_text(word);
        } else if (option_is(&left, "COUNT", HAD_COUNT)) {
            if (!option_number(&left, "COUNT", 1, PAGE_COUNT_MAX, &count))
                return false;
        } else if (option_is(&left, "CURSOR", HAD_CURSOR)) {
            if (!option_number(&left, "CURSOR", 0, UINT32_MAX, ret_cursor))
                return false;
        } else {
            return option_unknown(&left);
        }
    }
    page->most = (uint32_t)count;
    return true;
}

/* What a page may cost, in rows: names that are looked at, and what they are compared with. */
static uint32_t page_rows(const struct session *session, const struct page *page)
{
    size_t patterns = page->match.size + user_pattern_bytes(session->user, RIGHT_LOOK);
    struct core_counts counts;
    uint64_t cost;

    core_count(sessions_table(session->sessions), &counts);
    cost = (uint64_t)counts.locks * HF_NAME_MAX * patterns;
    if (cost > MATCH_COST_MAX)
        cost = MATCH_COST_MAX;
    return 1 + at_most(counts.locks, PAGE_STEPS) + (uint32_t)cost / ROW_MATCH_COST;
}

enum verdict command_locks(struct session *session, const struct resp_node *value)
{
    struct page page = {.session = session};
    uint64_t cursor;

    if (!parse_locks(session, value, &page, &cursor))
        return VERDICT_REFUSED;
    return submit_long_read(session, value, read_locks, page_rows(session, &page));
}

static bool write_row(void *context, const struct core_lock_view *view)
{
    struct page *page = context;
    struct session *session = page->session;
    struct resp_writer out = session->out;

    page->cost += page->patterns * view->name.size;
    if (view->once || (page->match.bytes && !glob_matches(page->match, view->name)) ||
        !session_may_look(session, view->name))
        return page->cost < MATCH_COST_MAX;
    session->out = page->rows;
    write_lock(session, view, 0);
    page->rows = session->out;
    session->out = out;
    return ++page->count < page->most && page->cost < MATCH_COST_MAX &&
           page->rows.size < session->sessions->max_output_bytes / 4;
}

/* Words of a request, as parse_locks wants them. */
static void read_locks(struct session *session, const struct words *words)
{
    struct resp_node value[1 + 7] = {{.type = RESP_ARRAY, .count = words->count}};
    struct page page = {.session = session};
    uint64_t cursor;
    uint32_t next;

    for (uint32_t i = 0; i < words->count; i++)
        value[1 + i] = (struct resp_node){
            .type = RESP_BLOB, .text = words->word[i].bytes, .size = words->word[i].size};
    if (!parse_locks(session, value, &page, &cursor))
        return; /* it was right before */
    page.patterns = page.match.size + user_pattern_bytes(session->user, RIGHT_LOOK);
    next = core_list(sessions_table(session->sessions), (uint32_t)cursor, PAGE_STEPS, write_row,
                     &page);
    resp_write_array(&session->out, 2);
    resp_write_integer(&session->out, next);
    resp_write_array(&session->out, page.count);
    if (page.rows.failed)
        session->out.failed = true;
    else if (page.rows.size)
        resp_write_raw(&session->out, page.rows.bytes, page.rows.size);
    resp_writer_free(&page.rows);
}

/* ---- watching -------------------------------------------------------------------------------------- */

enum verdict command_observe(struct session *session, const struct resp_node *value)
{
    struct core_text name;

    if (!session->resp3)
        return refuse(session,
                      "ERR OBSERVE needs RESP3: say HELLO 3 first, or SUBSCRIBE to the name");
    if (!parse_name(session, word_at(value, 1), &name))
        return VERDICT_REFUSED;
    return submit_read(session, value, read_observe);
}

/* It may have been taken while the command was under way: whoever reads the users file again looks at those that observe already. */
#define TAKEN "NOPERM the right to look at this name was taken meanwhile"

static void read_observe(struct session *session, const struct words *words)
{
    if (!session_may_look(session, words->word[1]))
        resp_write_error(&session->out, TAKEN);
    else if (session_is_closed(session) || observer_add(session, words->word[1], false))
        resp_write_simple(&session->out, "OK");
    else
        resp_write_error(&session->out, "LIMIT this connection observes too many names");
}

enum verdict command_unobserve(struct session *session, const struct resp_node *value)
{
    bool was = observer_remove(session, word_text(word_at(value, 1)), false);

    resp_write_integer(&session->out, was);
    return VERDICT_DONE;
}

/* Each name of a SUBSCRIBE has an answer of its own. */
static void write_subscription(struct session *session, const char *word, struct core_text name)
{
    struct resp_writer *out = &session->out;

    resp_write_push(out, 3, session->resp3);
    resp_write_text(out, word);
    if (name.bytes)
        resp_write_blob(out, name.bytes, name.size);
    else
        resp_write_nil(out, session->resp3);
    resp_write_integer(out, session->subscriptions);
}

enum verdict command_subscribe(struct session *session, const struct resp_node *value)
{
    struct core_text name;

    for (uint32_t i = 1; i < value->count; i++)
        if (!parse_name(session, word_at(value, i), &name))
            return VERDICT_REFUSED;
    if (session->observing + value->count - 1 > OBSERVED_MAX)
        return refuse(session, "LIMIT a connection observes at most %u names", OBSERVED_MAX);
    return submit_read(session, value, read_subscribe);
}

static void read_subscribe(struct session *session, const struct words *words)
{
    for (uint32_t i = 1; i < words->count; i++)
        if (!session_may_look(session, words->word[i])) {
            resp_write_error(&session->out, TAKEN);
            return;
        }
    for (uint32_t i = 1; i < words->count && !session_is_closed(session); i++) {
        observer_add(session, words->word[i], true);
        write_subscription(session, "subscribe", words->word[i]);
    }
}

enum verdict command_unsubscribe(struct session *session, const struct resp_node *value)
{
    struct core_text none = {NULL, 0};

    for (uint32_t i = 1; i < value->count; i++) {
        observer_remove(session, word_text(word_at(value, i)), true);
        write_subscription(session, "unsubscribe", word_text(word_at(value, i)));
    }
    if (value->count > 1)
        return VERDICT_DONE;
    if (session->subscriptions == 0)
        write_subscription(session, "unsubscribe", none);
    LIST_EACH_SAFE(node, &session->observers)
    {
        struct observer *observer = LIST_ENTRY(node, struct observer, of_session);
        struct core_text name = {observer->name, observer->size};

        if (!observer->subscribed)
            continue;
        session->subscriptions--;
        write_subscription(session, "unsubscribe", name);
        session->subscriptions++;
        observer_drop(observer);
    }
    return VERDICT_DONE;
}

/* ---- ONCE READ ------------------------------------------------------------------------------------- */

/* token owner age left; of one that was broken, what is left until another may run it. */
static bool write_runner(void *context, const struct core_claim_view *view)
{
    struct resp_writer *out = context;

    resp_write_integer(out, (int64_t)view->number);
    resp_write_blob(out, view->owner.bytes, view->owner.size);
    resp_write_integer(out, view->age_ms);
    resp_write_integer(out, span_shown(view->left_ms));
    return false;
}

/* nil: nobody knows of it. RUNNING token owner age left, DONE token result left, DIED token left. */
void read_once(struct session *session, const struct words *words)
{
    const struct core *core = sessions_table(session->sessions);
    struct resp_writer *out = &session->out;
    struct core_lock_view view;

    if (!core_find(core, words->word[0], true, &view)) {
        resp_write_nil(out, session->resp3);
        return;
    }
    /* With no tokens left, somebody may wait where nobody runs. */
    resp_write_array(out, view.done ? 4 : view.died ? 3 : (view.holds + view.ghosts > 0 ? 5 : 1));
    resp_write_text(out, view.done ? "DONE" : view.died ? "DIED" : "RUNNING");
    if (!view.done && !view.died) {
        core_each_hold(core, view.name, true, write_runner, out);
        return;
    }
    resp_write_integer(out, (int64_t)view.result_token);
    if (view.done)
        resp_write_blob(out, view.result.bytes, view.result.size);
    resp_write_integer(out, span_shown(view.result_left_ms));
}
