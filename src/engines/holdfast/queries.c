/* queries.c: asking about locks, and the operator's ways out. Questions are asked again when a
 * connection breaks; a break is not, because it might end a newer hold than was meant. */
#include "base/clock.h"
#include "base/sha256.h"
#include "base/text.h"
#include "engines/holdfast/store.h"

#include <stdio.h>
#include <string.h>

#define BREAK_MS 10000
#define WAITERS_WANTED 10000 /* as many as a server shows */
#define PAGE_NAMES 200       /* so that a page of names with many holders stays small */
#define HOLDERS_SHOWN 100    /* by a server, of one name */
#define ID_SIZE 32           /* of a server's store, in hex */
#define PREFIX_DIGEST 8      /* bytes of the digest of a prefix in our id */

static void read_number(void *context, int index, const struct resp_node *value)
{
    int64_t *number = context;

    (void)index;
    if (!resp_to_int64(value, number))
        *number = -1;
}

static void read_mode(void *context, int index, const struct resp_node *value)
{
    int *mode = context;

    (void)index;
    if (resp_is(value, "exclusive"))
        *mode = HF_EXCLUSIVE;
    else if (resp_is(value, "shared"))
        *mode = HF_SHARED;
    else if (resp_is(value, "permit"))
        *mode = HF_PERMIT;
    else
        *mode = value->type == RESP_NIL ? ENGINE_GONE : ENGINE_NOT_KNOWN;
}

/* ---- check and floor ------------------------------------------------------------------------- */

int holdfast_check(struct engine_store *store, const char *name, uint64_t token, int *ret_mode,
                   int64_t deadline_ms, struct error_text *err)
{
    int mode = ENGINE_NOT_KNOWN;
    struct call call = {
        .replies = 1, .repeatable = true, .reads = true, .context = &mode, .on_reply = read_mode};
    struct resp_writer writer = {0};
    int result = holdfast_check_name(store, name, err);

    if (result != HF_OK)
        return result;
    resp_write_array(&writer, 4);
    resp_write_text(&writer, "CHECK");
    holdfast_write_name(store, name, &writer);
    resp_write_number(&writer, (int64_t)token);
    resp_write_text(&writer, "MODE");
    result = pipeline_ask_written(store, &call, &writer, deadline_ms, err);
    if (result == HF_OK && mode == ENGINE_NOT_KNOWN)
        return error_set(err, HF_EINTERNAL, "an invalid answer to CHECK");
    if (result == HF_OK)
        *ret_mode = mode;
    return result;
}

int holdfast_floor(struct engine_store *store, uint64_t token, int64_t deadline_ms,
                   struct engine_floor *ret_floor, struct error_text *err)
{
    int64_t last = 0;
    struct call call = {
        .replies = 1, .repeatable = true, .context = &last, .on_reply = read_number};
    struct resp_writer writer = {0};
    int result;

    resp_write_array(&writer, 2);
    resp_write_text(&writer, "FLOOR");
    resp_write_number(&writer, (int64_t)token);
    result = pipeline_ask_written(store, &call, &writer, deadline_ms, err);
    if (result == HF_OK && last < (int64_t)token)
        result = error_set(err, HF_EINTERNAL, "an invalid answer to FLOOR");
    if (result == HF_OK)
        ret_floor->at = (uint64_t)last;
    return result;
}

/* ---- show and list --------------------------------------------------------------------------- */

struct showing {
    const struct engine_store *store;
    const struct engine_sink *sink;
    int64_t cursor;
    int result;
};

static void read_show(void *context, int index, const struct resp_node *value)
{
    struct showing *showing = context;

    (void)index;
    showing->result = decode_lock(showing->store, value, showing->sink);
}

static void write_show(const struct engine_store *store, const char *name, int waiters,
                       struct resp_writer *writer)
{
    resp_write_array(writer, 4);
    resp_write_text(writer, "SHOW");
    holdfast_write_name(store, name, writer);
    resp_write_text(writer, "WAITERS");
    resp_write_number(writer, waiters);
}

static int answer_of(const struct showing *showing, struct error_text *err)
{
    if (showing->result == HF_EINTERNAL)
        return error_set(err, HF_EINTERNAL, "an invalid answer about a lock");
    return showing->result;
}

int holdfast_show(struct engine_store *store, const char *name, const struct engine_sink *sink,
                  int64_t deadline_ms, struct error_text *err)
{
    struct showing showing = {.store = store, .sink = sink};
    struct call call = {.replies = 1,
                        .repeatable = true,
                        .reads = true,
                        .context = &showing,
                        .on_reply = read_show};
    struct resp_writer writer = {0};
    int result = holdfast_check_name(store, name, err);

    if (result != HF_OK)
        return result;
    write_show(store, name, WAITERS_WANTED, &writer);
    result = pipeline_ask_written(store, &call, &writer, deadline_ms, err);
    return result == HF_OK ? answer_of(&showing, err) : result;
}

/* [cursor, [lock, lock, ...]] */
static void read_page(void *context, int index, const struct resp_node *value)
{
    struct showing *showing = context;
    const struct resp_node *locks = resp_item(value, 1), *lock;

    (void)index;
    if (!resp_to_int64(resp_item(value, 0), &showing->cursor) || !locks) {
        showing->result = HF_EINTERNAL;
        return;
    }
    lock = locks + 1;
    for (uint32_t i = 0; i < locks->count && showing->result == HF_OK; i++) {
        showing->result = decode_lock(showing->store, lock, showing->sink);
        lock += lock->span;
    }
}

/* The prefix as a pattern, if that is not too long for the server; then all names are looked at. */
static bool prefix_pattern(const struct engine_store *store, char ret_pattern[HF_NAME_MAX + 1])
{
    size_t used = 0;

    for (const char *at = store->prefix; *at; at++) {
        if (used + 3 > HF_NAME_MAX)
            return false;
        if (strchr("*?[]\\^-", *at))
            ret_pattern[used++] = '\\';
        ret_pattern[used++] = *at;
    }
    ret_pattern[used++] = '*';
    ret_pattern[used] = '\0';
    return store->prefix_size > 0;
}

int holdfast_list(struct engine_store *store, const char *match, bool all,
                  const struct engine_sink *sink, int64_t deadline_ms, struct error_text *err)
{
    struct showing showing = {.store = store, .sink = sink};
    char pattern[HF_NAME_MAX + 1];
    bool matches = prefix_pattern(store, pattern);
    int result;

    (void)match; /* the client filters */
    (void)all;
    do {
        struct call call = {.replies = 1,
                            .repeatable = true,
                            .reads = true,
                            .context = &showing,
                            .on_reply = read_page};
        struct resp_writer writer = {0};

        resp_write_array(&writer, matches ? 7 : 5);
        resp_write_text(&writer, "LOCKS");
        resp_write_text(&writer, "COUNT");
        resp_write_number(&writer, PAGE_NAMES);
        resp_write_text(&writer, "CURSOR");
        resp_write_number(&writer, showing.cursor);
        if (matches) {
            resp_write_text(&writer, "MATCH");
            resp_write_text(&writer, pattern);
        }
        result = pipeline_ask_written(store, &call, &writer, deadline_ms, err);
        if (result == HF_OK)
            result = answer_of(&showing, err);
    } while (result == HF_OK && showing.cursor != 0);
    return result;
}

/* ---- break ----------------------------------------------------------------------------------- */

struct holders {
    uint64_t tokens[HOLDERS_SHOWN];
    uint32_t count;
};

static void note_holder(void *context, uint64_t token)
{
    struct holders *holders = context;

    if (holders->count < HOLDERS_SHOWN)
        holders->tokens[holders->count++] = token;
}

static void read_holders(void *context, int index, const struct resp_node *value)
{
    struct holders *holders = context;

    (void)index;
    holders->count = 0;
    decode_holders(value, note_holder, holders);
}

static int look(struct engine_store *store, const char *name, struct holders *ret_holders,
                int64_t deadline_ms, struct error_text *err)
{
    struct call call = {.replies = 1,
                        .repeatable = true,
                        .reads = true,
                        .context = ret_holders,
                        .on_reply = read_holders};
    struct resp_writer writer = {0};

    write_show(store, name, 1, &writer);
    return pipeline_ask_written(store, &call, &writer, deadline_ms, err);
}

static bool share_one(const struct holders *a, const struct holders *b)
{
    for (uint32_t i = 0; i < a->count; i++)
        for (uint32_t j = 0; j < b->count; j++)
            if (a->tokens[i] == b->tokens[j])
                return true;
    return false;
}

static int ask_break(struct engine_store *store, const char *name, int64_t grace_ms,
                     int64_t *ret_broken, int64_t deadline_ms, struct error_text *err)
{
    struct call call = {.replies = 1, .context = ret_broken, .on_reply = read_number};
    struct resp_writer writer = {0};

    resp_write_array(&writer, grace_ms == 0 ? 3 : 2);
    resp_write_text(&writer, "BREAK");
    holdfast_write_name(store, name, &writer);
    if (grace_ms == 0)
        resp_write_text(&writer, "NOW");
    return pipeline_ask_written(store, &call, &writer, deadline_ms, err);
}

/* With a grace the server itself withholds the name for as long as the holders' leases would have
 * lasted. An answer that was lost is looked for: if those who held it do so no more, it is done. */
int holdfast_break(struct engine_store *store, const char *name, int64_t grace_ms,
                   uint32_t *ret_broken, struct error_text *err)
{
    int64_t deadline_ms = clock_after(clock_boot_ms(), BREAK_MS), broken = 0;
    struct holders before, after;
    struct error_text ignored;
    int result = holdfast_check_name(store, name, err);

    if (result == HF_OK)
        result = look(store, name, &before, deadline_ms, err);
    if (result != HF_OK)
        return result;
    result = ask_break(store, name, grace_ms, &broken, deadline_ms, err);
    if (result == HF_EUNKNOWN && look(store, name, &after, deadline_ms, &ignored) == HF_OK &&
        !share_one(&before, &after)) {
        broken = before.count;
        result = HF_OK;
    }
    if (result == HF_OK)
        *ret_broken = (uint32_t)broken;
    return result;
}

/* ---- the store's id -------------------------------------------------------------------------- */

struct naming {
    char id[ID_SIZE + 1];
};

/* The value of "store_id:..." in an answer to INFO; false: it has none yet. */
static bool find_id(const struct resp_node *value, char ret_id[ID_SIZE + 1])
{
    static const char key[] = "\nstore_id:";
    const char *at;

    if (value->type != RESP_BLOB)
        return false;
    at = memmem(value->text, value->size, key, sizeof key - 1);
    if (!at || (size_t)(value->text + value->size - at) < sizeof key - 1 + ID_SIZE)
        return false;
    memcpy(ret_id, at + sizeof key - 1, ID_SIZE);
    ret_id[ID_SIZE] = '\0';
    return strspn(ret_id, "0123456789abcdef") == ID_SIZE && strspn(ret_id, "0") < ID_SIZE;
}

/* In the second answer. The first, to CHECK, is there because a server that does not lead answers that
 * with MOVED, but INFO from what it has. */
static void read_id(void *context, int index, const struct resp_node *value)
{
    struct naming *naming = context;

    if (index > 0 && !find_id(value, naming->id))
        naming->id[0] = '\0';
}

static int ask_id(struct engine_store *store, struct naming *naming, int64_t deadline_ms,
                  struct error_text *err)
{
    struct call call = {
        .replies = 2, .repeatable = true, .reads = true, .context = naming, .on_reply = read_id};
    struct resp_writer writer = {0};
    int result;

    resp_write_array(&writer, 3);
    resp_write_text(&writer, "CHECK");
    resp_write_text(&writer, "id");
    resp_write_text(&writer, "1");
    resp_write_array(&writer, 2);
    resp_write_text(&writer, "INFO");
    resp_write_text(&writer, "locks");
    result = pipeline_ask_written(store, &call, &writer, deadline_ms, err);
    if (result == HF_OK && !naming->id[0])
        return error_set(err, HF_EINTERNAL, "the server does not say which store it is");
    return result;
}

/* Each prefix is a store of its own: the same name means another lock there. */
static void make_id(const struct engine_store *store, const char *server_id, char ret_id[65])
{
    unsigned char digest[SHA256_SIZE];
    char of_prefix[2 * PREFIX_DIGEST + 1];

    if (!store->prefix_size) {
        snprintf(ret_id, 65, "%s", server_id);
        return;
    }
    sha256(store->prefix, store->prefix_size, digest);
    text_hex(digest, PREFIX_DIGEST, of_prefix);
    snprintf(ret_id, 65, "%s.%s", server_id, of_prefix);
}

int holdfast_id(struct engine_store *store, char ret_id[65], int64_t deadline_ms,
                struct error_text *err)
{
    struct naming naming = {""};
    int result = ask_id(store, &naming, deadline_ms, err);

    if (result == HF_OK)
        make_id(store, naming.id, ret_id);
    return result;
}

static void tell_host(void *context, int index, const struct resp_node *value)
{
    const struct engine_store *store = context;
    char server_id[ID_SIZE + 1], id[65];
    bool found = find_id(value, server_id);

    (void)index;
    if (found)
        make_id(store, server_id, id);
    store->host->connected(store->host->context, found ? id : NULL);
}

/* It leads, or did so when it greeted: in either case it knows which store it is. */
void holdfast_ask_name(struct engine_store *store)
{
    static const char question[] = "*2\r\n$4\r\nINFO\r\n$5\r\nlocks\r\n";

    list_remove(&store->naming.node);
    store->naming = (struct call){.request = question,
                                  .size = sizeof question - 1,
                                  .replies = 1,
                                  .aside = true,
                                  .context = store,
                                  .on_reply = tell_host};
    pipeline_ask_aside(store, &store->naming);
}
