#include "engines/redis/scripts.h"
#include "base/sha1.h"
#include "base/switches.h"
#include "base/text.h"

#include <redis-scripts.h> /* made by tools/embed */

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define SCRIPT_BYTES_MAX 16384
#define KEYS 8
#define KEYS_ONCE 10 /* of a once-record: two more */

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
    [SCRIPT_ONCE_CLAIM] = {.body = script_text_once_claim},
    [SCRIPT_ONCE_FINISH] = {.body = script_text_once_finish},
    [SCRIPT_ONCE_READ] = {.body = script_text_once_read},
};

static void put_together(void)
{
    for (size_t i = SCRIPT_NONE + 1; i < SCRIPT_COUNT; i++) {
        struct script *script = &scripts[i];
        unsigned char digest[SHA1_SIZE];
        int size = snprintf(script->text, sizeof script->text, "%s%s%s%s", script_text_keys,
                            script->quick ? script->quick : "", script_text_common, script->body);

        INVARIANT(size > 0 && (size_t)size < sizeof script->text);
        SWITCHED_TEXT(SWITCH_REDIS_RELEASE_ANY, script->text, "own ~= token", "false");
        SWITCHED_TEXT(SWITCH_REDIS_ENDED_ACQUIRES, script->text, "call('EXISTS', ended) == 1",
                      "false");
        SWITCHED_TEXT(SWITCH_REDIS_PERMIT_TOO_MANY, script->text,
                      "call('ZCARD', members) >= permits", "call('ZCARD', members) > permits");
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

/* The order is that of KEYS in keys.lua. */
static const char *const labels[KEYS_ONCE] = {
    "",
    SCRIPT_KEY_RESERVED "info:",
    SCRIPT_KEY_RESERVED "wait:",
    SCRIPT_KEY_RESERVED "due:",
    SCRIPT_KEY_RESERVED "members:",
    SCRIPT_KEY_RESERVED "turn:",
    SCRIPT_KEY_RESERVED "token:",
    SCRIPT_KEY_RESERVED "ended:",
    SCRIPT_KEY_RESERVED "record:",
    SCRIPT_KEY_RESERVED "runner:",
};
/* What the name of a lock is to its keys, this and the key are to a once-record's: they do not meet,
 * because no key of a lock begins so. */
#define LABEL_ONCE SCRIPT_KEY_RESERVED "once:"
#define KEY_COUNTER 6 /* one per prefix */
#define KEY_ENDED 7   /* one per lease */

static void write_key(struct resp_writer *writer, const char *label, const char *once,
                      const char *prefix, const char *rest)
{
    const char *const parts[] = {label, once, prefix, rest};
    char key[sizeof SCRIPT_KEY_RESERVED + 16 + sizeof LABEL_ONCE + HF_URL_MAX + HF_NAME_MAX];
    size_t used = 0;

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        size_t size = strlen(parts[i]);

        INVARIANT(used + size <= sizeof key);
        memcpy(key + used, parts[i], size);
        used += size;
    }
    resp_write_blob(writer, key, used);
}

static void write_script(struct resp_writer *writer, enum script_id id, bool by_text, bool once,
                         const char *prefix, const char *name, const char *lease, size_t arguments)
{
    const struct script *script = script_get(id);
    int keys = once ? KEYS_ONCE : KEYS;

    resp_write_array(writer, 3 + (size_t)keys + arguments);
    if (by_text) {
        resp_write_text(writer, "EVAL");
        resp_write_blob(writer, script->text, script->size);
    } else {
        resp_write_text(writer, "EVALSHA");
        resp_write_blob(writer, script->sha, 2 * SHA1_SIZE);
    }
    resp_write_number(writer, keys);
    for (int i = 0; i < keys; i++) {
        bool of_name = i != KEY_COUNTER && i != KEY_ENDED;

        write_key(writer, labels[i], of_name && once ? LABEL_ONCE : "", prefix,
                  of_name          ? name
                  : i == KEY_ENDED ? lease
                                   : "");
    }
}

void script_write(struct resp_writer *writer, enum script_id id, bool by_text, const char *prefix,
                  const char *name, const char *lease, size_t arguments)
{
    write_script(writer, id, by_text, false, prefix, name, lease, arguments);
}

void script_write_once(struct resp_writer *writer, enum script_id id, bool by_text,
                       const char *prefix, const char *key, const char *lease, size_t arguments)
{
    write_script(writer, id, by_text, true, prefix, key, lease, arguments);
}
