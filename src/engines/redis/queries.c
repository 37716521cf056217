/* queries.c: asking one Redis server about its locks, and the operator's ways out. */
#include "base/clock.h"
#include "base/random.h"
#include "base/text.h"
#include "engines/redis/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BREAK_MS 10000
#define ID_BYTES 16

/* A script about one name with one argument, and its answer if that is a number. */
struct plain {
    struct engine_store *store;
    enum script_id script;
    const char *name;
    int64_t argument;
    int64_t answer;
};

static void write_plain(void *context, int index, bool by_text, struct resp_writer *writer)
{
    const struct plain *plain = context;

    (void)index;
    script_write(writer, plain->script, by_text, plain->store->prefix, plain->name, "", 1);
    resp_write_number(writer, plain->argument);
}

static void read_plain(void *context, int node, int index, const struct resp_node *value)
{
    struct plain *plain = context;

    (void)node;
    (void)index;
    if (!resp_to_int64(value, &plain->answer))
        plain->answer = -1;
}

static int ask_plain(struct plain *plain, int64_t deadline_ms, struct error_text *err)
{
    struct question question = {
        .commands = 1, .context = plain, .write = write_plain, .answer = read_plain};

    return redis_ask(plain->store, &question, deadline_ms, err);
}

int redis_check(struct engine_store *store, const char *name, uint64_t token, int *ret_mode,
                int64_t deadline_ms, struct error_text *err)
{
    struct plain plain = {
        .store = store, .script = SCRIPT_CHECK, .name = name, .argument = (int64_t)token};
    int result = ask_plain(&plain, deadline_ms, err);

    if (result == HF_OK)
        *ret_mode = plain.answer > 0 ? (int)plain.answer - 1 + HF_EXCLUSIVE : ENGINE_GONE;
    return result;
}

int redis_break(struct engine_store *store, const char *name, int64_t grace_ms,
                uint32_t *ret_broken, struct error_text *err)
{
    struct plain plain = {
        .store = store, .script = SCRIPT_BREAK, .name = name, .argument = grace_ms};
    int result = ask_plain(&plain, clock_after(clock_boot_ms(), BREAK_MS), err);

    if (result == HF_OK)
        *ret_broken = (uint32_t)plain.answer;
    return result;
}

int redis_floor(struct engine_store *store, uint64_t token, int64_t deadline_ms,
                struct engine_floor *ret_floor, struct error_text *err)
{
    struct plain plain = {
        .store = store, .script = SCRIPT_FLOOR, .name = "", .argument = (int64_t)token};

    int result;

    if (token >= HF_TOKEN_MAX)
        return error_set(err, HF_EREFUSED, "no token is greater than that");
    result = ask_plain(&plain, deadline_ms, err);
    if (result == HF_OK && plain.answer < (int64_t)token)
        result = error_set(err, HF_EINTERNAL, "an invalid answer to a floor");
    if (result == HF_OK)
        ret_floor->at = (uint64_t)plain.answer;
    return result;
}

/* ---- show and list --------------------------------------------------------------------------- */

struct showing {
    struct engine_store *store;
    char *const *names;
    bool waiters;
    const struct engine_sink *sink;
    int result;
};

static void write_show(void *context, int index, bool by_text, struct resp_writer *writer)
{
    const struct showing *showing = context;

    script_write(writer, SCRIPT_SHOW, by_text, showing->store->prefix, showing->names[index], "",
                 1);
    resp_write_text(writer, showing->waiters ? "all" : "holders");
}

static void read_show(void *context, int node, int index, const struct resp_node *value)
{
    struct showing *showing = context;
    struct row row;

    (void)node;
    for (const struct resp_node *at = value + 1; at < value + value->span; at += at->span)
        if (showing->result == HF_OK && row_read(at, showing->names[index], &row))
            showing->result = row_add(&row, showing->sink);
}

static int show_names(struct engine_store *store, char *const *names, size_t count, bool waiters,
                      const struct engine_sink *sink, int64_t deadline_ms, struct error_text *err)
{
    int result = HF_OK;

    for (size_t done = 0; done < count && result == HF_OK; done += REDIS_BATCH_MAX) {
        struct showing showing = {store, names + done, waiters, sink, HF_OK};
        struct question question = {.commands = count - done < REDIS_BATCH_MAX ? (int)(count - done)
                                                                               : REDIS_BATCH_MAX,
                                    .context = &showing,
                                    .write = write_show,
                                    .answer = read_show};

        result = redis_ask(store, &question, deadline_ms, err);
        if (result == HF_OK)
            result = showing.result;
    }
    return result;
}

int redis_show(struct engine_store *store, const char *name, const struct engine_sink *sink,
               int64_t deadline_ms, struct error_text *err)
{
    char copy[HF_NAME_MAX + 1], *names[1] = {copy};

    snprintf(copy, sizeof copy, "%s", name);
    return show_names(store, names, 1, true, sink, deadline_ms, err);
}

int redis_list(struct engine_store *store, const char *match, bool all,
               const struct engine_sink *sink, int64_t deadline_ms, struct error_text *err)
{
    struct scanning scanning = {.store = store, .cursor = "0"};
    struct question question = {
        .commands = 1, .context = &scanning, .write = scan_write, .answer = scan_read};
    int result;

    (void)match; /* the client filters */
    (void)all;   /* a name that nobody holds leaves nothing here */
    do {
        result = redis_ask(store, &question, deadline_ms, err);
        if (result == HF_OK && !scanning.well)
            result = error_set(err, HF_EINTERNAL, "an invalid answer to SCAN");
    } while (result == HF_OK && strcmp(scanning.cursor, "0") != 0);
    if (result == HF_OK) {
        names_sort(&scanning.names);
        result = show_names(store, scanning.names.names, scanning.names.count, false, sink,
                            deadline_ms, err);
    }
    names_free(&scanning.names);
    return result;
}

/* ---- the store's id -------------------------------------------------------------------------- */

struct naming {
    struct engine_store *store;
    char proposed[2 * ID_BYTES + 1];
    char *ret_id;
    bool well;
};

/* SET NX, then GET: whoever came first named it. */
static void write_id(void *context, int index, bool by_text, struct resp_writer *writer)
{
    const struct naming *naming = context;
    char key[sizeof SCRIPT_KEY_RESERVED + 4 + REDIS_PREFIX_MAX];
    int size = snprintf(key, sizeof key, SCRIPT_KEY_RESERVED "id:%s", naming->store->prefix);

    (void)by_text;
    resp_write_array(writer, index == 0 ? 4 : 2);
    resp_write_text(writer, index == 0 ? "SET" : "GET");
    resp_write_blob(writer, key, (size_t)size);
    if (index == 0) {
        resp_write_text(writer, naming->proposed);
        resp_write_text(writer, "NX");
    }
}

static void read_id(void *context, int node, int index, const struct resp_node *value)
{
    struct naming *naming = context;

    (void)node;
    if (index == 0 || value->type != RESP_BLOB || value->size != 2 * ID_BYTES)
        return;
    memcpy(naming->ret_id, value->text, value->size);
    naming->ret_id[value->size] = '\0';
    naming->well = strspn(naming->ret_id, "0123456789abcdef") == 2 * ID_BYTES;
}

int redis_id(struct engine_store *store, char ret_id[65], int64_t deadline_ms,
             struct error_text *err)
{
    struct naming naming = {.store = store, .ret_id = ret_id};
    struct question question = {
        .commands = 2, .context = &naming, .write = write_id, .answer = read_id};
    unsigned char id[ID_BYTES];
    int result;

    random_fill(id, sizeof id);
    text_hex(id, sizeof id, naming.proposed);
    result = redis_ask(store, &question, deadline_ms, err);
    if (result == HF_OK && !naming.well)
        return error_set(err, HF_EREFUSED,
                         "the store's id, in the key " SCRIPT_KEY_RESERVED
                         "id:..., is not one of ours");
    return result;
}
