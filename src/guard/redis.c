/* redis.c: the Redis guard: texts of Lua, for whatever client a program has. It speaks to no Redis.
 *
 * src/guard/redis/check.lua is what all of them have in common; an operation is a file beside it.
 * The same words make a script for EVAL (check, then the operation) and a library of functions
 * (check, then all operations, each registered with KEYS and ARGV as its parameters).
 *
 * A user's own script comes before check.lua, so that it sees nothing of ours, and on our first
 * line, so that Redis counts its lines as its author does. */
#include "base/failure.h"
#include "base/switches.h"

#include <guard-redis.h> /* made by tools/embed */

#include <ctype.h>
#include <holdfast/guard.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCRIPT_BYTES_MAX 8192
#define LIBRARY_BYTES_MAX 16384
#define REGISTER_BYTES_MAX 4096
#define OPERATIONS (sizeof operations / sizeof *operations)

static struct operation {
    const char *name, *body, *about; /* about: for FUNCTION LIST, without quotes */
    char script[SCRIPT_BYTES_MAX];
} operations[] = {
    {"enter", script_text_enter, "raise the mark before the first read"},
    {"set", script_text_set, "SET, if the token is not stale"},
    {"del", script_text_del, "DEL, if the token is not stale"},
    {"hset", script_text_hset, "HSET, if the token is not stale"},
    {"reset", script_text_reset, "set a mark on purpose, and log it (for operators)"},
};

static char library[LIBRARY_BYTES_MAX];

static const char function_format[] = "redis.register_function{function_name='%s%s', "
                                      "description='%s', callback=function(KEYS, ARGV)\n"
                                      "%send}\n";

/* ---- our own operations ---------------------------------------------------------------------- */

static void write_script(struct operation *operation)
{
    int size = snprintf(operation->script, sizeof operation->script, "%s%s", script_text_check,
                        operation->body);

    INVARIANT(size > 0 && (size_t)size < sizeof operation->script);
    SWITCHED_TEXT(SWITCH_GUARD_REDIS_OLDER, operation->script, "now < before", "false");
}

static void put_together(void)
{
    int used = snprintf(library, sizeof library, "#!lua name=%s\n%s", HF_GUARD_REDIS_LIBRARY,
                        script_text_check);

    for (size_t i = 0; i < OPERATIONS; i++) {
        INVARIANT(used > 0 && (size_t)used < sizeof library);
        used += snprintf(library + used, sizeof library - (size_t)used, function_format,
                         HF_GUARD_REDIS_LIBRARY "_", operations[i].name, operations[i].about,
                         operations[i].body);
        write_script(&operations[i]);
    }
    INVARIANT((size_t)used < sizeof library);
    SWITCHED_TEXT(SWITCH_GUARD_REDIS_OLDER, library, "now < before", "false");
}

static void put_together_once(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, put_together);
}

const char *hf_guard_redis_library(void)
{
    put_together_once();
    return library;
}

const char *hf_guard_redis_script(const char *operation)
{
    struct error_text err;

    put_together_once();
    for (size_t i = 0; operation && i < OPERATIONS; i++)
        if (strcmp(operations[i].name, operation) == 0)
            return operations[i].script;
    error_set(&err, HF_EINVAL, "no operation '%s': there are enter, set, del, hset and reset",
              operation ? operation : "");
    failure_keep(HF_EINVAL, &err);
    return NULL;
}

/* ---- a user's own script --------------------------------------------------------------------- */

static int check_name(const char *name, struct error_text *err)
{
    size_t length = strlen(name);

    for (size_t i = 0; i < length; i++)
        if (!isascii(name[i]) || (!isalnum(name[i]) && name[i] != '_'))
            return error_set(err, HF_EINVAL,
                             "'%s' is not a valid function name: letters, digits and '_' only",
                             name);
    if (length == 0 || length > HF_GUARD_REDIS_NAME_MAX)
        return error_set(err, HF_EINVAL, "the name of a function has 1 to %d letters",
                         HF_GUARD_REDIS_NAME_MAX);
    if (strncmp(name, HF_GUARD_REDIS_LIBRARY, strlen(HF_GUARD_REDIS_LIBRARY)) == 0)
        return error_set(err, HF_EINVAL, "names that begin with '%s' are ours: choose another",
                         HF_GUARD_REDIS_LIBRARY);
    return HF_OK;
}

static int check_body(const char *body, struct error_text *err)
{
    if (!*body)
        return error_set(err, HF_EINVAL, "there is no script to wrap: it is empty");
    if (strlen(body) > HF_GUARD_REDIS_BODY_MAX)
        return error_set(err, HF_EINVAL, "the script is too long: at most %d bytes",
                         HF_GUARD_REDIS_BODY_MAX);
    if (strncmp(body, "#!", 2) == 0)
        return error_set(err, HF_EINVAL,
                         "the script begins with '#!': give what comes after that line");
    return HF_OK;
}

static int wrap(const char *name, const char *body, char **ret_text, struct error_text *err)
{
    char *text = NULL, last[REGISTER_BYTES_MAX];
    int result = name ? check_name(name, err) : HF_OK, size;

    if (result == HF_OK)
        result = check_body(body, err);
    if (result != HF_OK)
        return result;
    size = name ? snprintf(last, sizeof last, function_format, "", name,
                           "a script of yours, if the token is not stale", script_text_wrap)
                : snprintf(last, sizeof last, "%s", script_text_wrap);
    INVARIANT(size > 0 && (size_t)size < sizeof last);
    size = asprintf(&text, "%s%s%slocal body = function(KEYS, ARGV, ...) %s\nend\n%s%s",
                    name ? "#!lua name=" HF_GUARD_REDIS_LIBRARY "_" : "", name ? name : "",
                    name ? "\n" : "", body, script_text_check, last);
    if (size < 0)
        return error_set(err, HF_ENOMEM, "out of memory");
    *ret_text = text;
    return HF_OK;
}

int hf_guard_redis_wrap(const char *name, const char *body, char **ret_text)
{
    struct error_text err;

    if (!body || !ret_text)
        return failure_keep(
            error_set(&err, HF_EINVAL, "hf_guard_redis_wrap needs a script, and where to put it"),
            &err);
    return failure_keep(wrap(name, body, ret_text, &err), &err);
}

/* ---- where a mark lives ---------------------------------------------------------------------- */

/* What Redis Cluster takes for a key's slot: what is between the first '{' and the first '}' after
 * it, unless that is nothing; else all of the key. */
static bool has_tag(const char *key)
{
    const char *open = strchr(key, '{'), *close = open ? strchr(open, '}') : NULL;

    return close && close > open + 1;
}

static int mark_of(const char *key, char *ret_mark, size_t size, struct error_text *err)
{
    size_t length = strlen(key);
    int written;

    if (length == 0 || length > HF_KEY_MAX)
        return error_set(err, HF_EINVAL, "a guard's key has 1 to %d bytes", HF_KEY_MAX);
    if (size < HF_GUARD_REDIS_MARK_MAX)
        return error_set(err, HF_EINVAL, "a mark's key needs room for %d bytes",
                         HF_GUARD_REDIS_MARK_MAX);
    if (!has_tag(key) && strchr(key, '}'))
        return error_set(err, HF_EINVAL,
                         "no mark can be in the same slot as a key with '}' and no {tag}: "
                         "choose a mark by hand, '%s...'",
                         HF_GUARD_REDIS_MARKS);
    /* Apart, so that the marks of "{a}" and of "a" are two. */
    written =
        snprintf(ret_mark, size, has_tag(key) ? "%stag:%s" : "%s{%s}", HF_GUARD_REDIS_MARKS, key);
    INVARIANT(written > 0 && (size_t)written < size);
    return HF_OK;
}

int hf_guard_redis_mark(const char *key, char *ret_mark, size_t size)
{
    struct error_text err;

    if (!key || !ret_mark)
        return failure_keep(error_set(&err, HF_EINVAL,
                                      "hf_guard_redis_mark needs a key, and where to put its mark"),
                            &err);
    return failure_keep(mark_of(key, ret_mark, size, &err), &err);
}
