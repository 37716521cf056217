/* environment.c
 *
 * HOLDFAST_HELD lists the locks that surround this process, outermost first, separated by blanks.
 * Each entry is DIGEST:SEQUENCER, the digest being the first 16 hex digits of the SHA-256 of the
 * name. The sequencer names the store by its id, so that two spellings of one URL are found to be
 * the same store, and it can be asked about, so that a lock which is long over does not count.
 *
 * HOLDFAST_ONCE does the same for what is run once. An entry is DIGEST:TOKEN, the digest being that of
 * the store's URL, as the job has it, and the key. */
#include "cli/environment.h"
#include "base/sha256.h"
#include "base/text.h"
#include "cli/joburl.h"
#include "cli/output.h"

#include <holdfast/once.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DIGEST_BYTES 8
#define DIGEST_TEXT (2 * DIGEST_BYTES + 1)
#define HELD_MAX 65536 /* bytes of HOLDFAST_HELD: more than thirty locks deep */

static void digest_of(const char *name, char ret_text[DIGEST_TEXT])
{
    unsigned char digest[SHA256_SIZE];

    sha256(name, strlen(name), digest);
    text_hex(digest, DIGEST_BYTES, ret_text);
}

static bool is_named(const char *setting, const char *name)
{
    size_t length = strlen(name);

    return strncmp(setting, name, length) == 0 && setting[length] == '=';
}

/* Variables of ours that a job must not inherit as they are. */
static bool is_ours(const char *setting, const struct heartbeat *heartbeat)
{
    static const char *const names[] = {"HOLDFAST_NAME",     "HOLDFAST_TOKEN", "HOLDFAST_SEQUENCER",
                                        "HOLDFAST_URL",      "HOLDFAST_HELD",  "HOLDFAST_LEASE",
                                        "HOLDFAST_PASSWORD", "HOLDFAST_ONCE",  "HOLDFAST_TTL"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (is_named(setting, names[i]))
            return true;
    }
    return heartbeat->every_ms > 0 &&
           (is_named(setting, HEARTBEAT_FD_NAME) || is_named(setting, HEARTBEAT_PIPE_NAME));
}

static bool add(char **list, size_t *count, const char *name, const char *value)
{
    if (asprintf(&list[*count], "%s=%s", name, value) < 0) {
        list[*count] = NULL;
        return false;
    }
    (*count)++;
    return true;
}

/* Adds NAME=OUTER ENTRY, OUTER being what it was, if anything; without an entry only that. */
static bool add_nested(char **list, size_t *count, const char *name, const char *digest,
                       const char *rest)
{
    const char *outer = getenv(name);
    bool both = outer && digest;

    if (!outer && !digest)
        return true;
    if (asprintf(&list[*count], "%s=%s%s%s%s%s", name, outer ? outer : "", both ? " " : "",
                 digest ? digest : "", digest ? ":" : "", digest ? rest : "") < 0) {
        list[*count] = NULL;
        return false;
    }
    (*count)++;
    return true;
}

static bool add_heartbeat(char **list, size_t *count, const struct heartbeat *heartbeat)
{
    char fd[HEARTBEAT_TEXT_MAX], pipe[HEARTBEAT_TEXT_MAX];

    if (heartbeat->every_ms == 0)
        return true;
    heartbeat_describe(heartbeat, fd, pipe);
    return add(list, count, HEARTBEAT_FD_NAME, fd) && add(list, count, HEARTBEAT_PIPE_NAME, pipe);
}

static void digest_of_key(const char *url, const char *key, char ret_text[DIGEST_TEXT])
{
    char text[HF_URL_MAX + HF_NAME_MAX + 2];

    snprintf(text, sizeof text, "%s\n%s", url, key);
    digest_of(text, ret_text);
}

/* What both kinds of job have. sequencer NULL: it is to be run once. */
static int environment_with(hf_store *store, hf_lock *lock, const char *sequencer,
                            const struct heartbeat *heartbeat, char ***ret_environment,
                            struct error_text *err)
{
    const char *name = hf_lock_name(lock);
    char token[24], digest[DIGEST_TEXT], url[HF_URL_MAX + 1];
    size_t inherited = 0, count = 0;
    char **list;
    int result = joburl(store, url, err);

    if (result != HF_OK)
        return result;
    while (environ[inherited])
        inherited++;
    list = calloc(inherited + 9, sizeof *list);
    if (!list)
        return error_set(err, HF_ENOMEM, "out of memory");
    snprintf(token, sizeof token, "%llu", (unsigned long long)hf_lock_token(lock));
    if (sequencer)
        digest_of(name, digest);
    else
        digest_of_key(url, name, digest);
    for (size_t i = 0; i < inherited; i++)
        if (!is_ours(environ[i], heartbeat) && !(list[count++] = strdup(environ[i])))
            goto no_memory;
    if (add(list, &count, "HOLDFAST_NAME", name) && add(list, &count, "HOLDFAST_TOKEN", token) &&
        (!sequencer || add(list, &count, "HOLDFAST_SEQUENCER", sequencer)) &&
        add(list, &count, "HOLDFAST_URL", url) && add_heartbeat(list, &count, heartbeat) &&
        add_nested(list, &count, "HOLDFAST_HELD", sequencer ? digest : NULL, sequencer) &&
        add_nested(list, &count, "HOLDFAST_ONCE", sequencer ? NULL : digest, token)) {
        *ret_environment = list;
        return HF_OK;
    }
no_memory:
    environment_free(list);
    return error_set(err, HF_ENOMEM, "out of memory");
}

int environment_for(hf_store *store, hf_lock *lock, const struct heartbeat *heartbeat,
                    char ***ret_environment, struct error_text *err)
{
    char sequencer[HF_SEQUENCER_MAX];
    int result = hf_lock_sequencer(lock, sequencer, sizeof sequencer);

    if (result == HF_OK)
        return environment_with(store, lock, sequencer, heartbeat, ret_environment, err);
    return error_set(err, result, "%s", hf_error());
}

int environment_for_once(hf_store *store, hf_lock *lock, const struct heartbeat *heartbeat,
                         char ***ret_environment, struct error_text *err)
{
    return environment_with(store, lock, NULL, heartbeat, ret_environment, err);
}

void environment_free(char **environment)
{
    for (size_t i = 0; environment && environment[i]; i++)
        free(environment[i]);
    free(environment);
}

int environment_check_nested(hf_store *store, const char *name, struct error_text *err)
{
    const char *held = getenv("HOLDFAST_HELD");
    char digest[DIGEST_TEXT];

    if (!held || !*held)
        return HF_OK;
    if (strlen(held) > HELD_MAX)
        return error_set(err, HF_EINVAL, "HOLDFAST_HELD is too long: runs are nested too deeply");
    digest_of(name, digest);
    for (;;) {
        size_t length = strcspn(held, " ");
        char sequencer[HF_SEQUENCER_MAX];
        int result;

        if (length > DIGEST_TEXT && strncmp(held, digest, DIGEST_TEXT - 1) == 0 &&
            held[DIGEST_TEXT - 1] == ':' && length - DIGEST_TEXT < sizeof sequencer) {
            memcpy(sequencer, held + DIGEST_TEXT, length - DIGEST_TEXT);
            sequencer[length - DIGEST_TEXT] = '\0';
            result = hf_check_sequencer(store, sequencer);
            if (result == HF_OK)
                return error_set(
                    err, HF_EINVAL,
                    "this job already runs under the lock '%.200s' and would wait for itself: "
                    "take it once, in the outermost command",
                    printable(name));
            if (result != HF_ELOST && result != HF_ESTORE && result != HF_EINVAL)
                return error_set(err, result, "%s", hf_error());
        }
        if (!held[length])
            return HF_OK;
        held += length + 1;
    }
}

int environment_check_nested_once(hf_store *store, const char *key, struct error_text *err)
{
    const char *around = getenv("HOLDFAST_ONCE");
    char digest[DIGEST_TEXT], token[24], url[HF_URL_MAX + 1];
    bool runs;
    hf_once *once;
    int result;

    if (!around || !*around)
        return HF_OK;
    result = joburl(store, url, err);
    if (result != HF_OK)
        return result;
    digest_of_key(url, key, digest);
    around = strstr(around, digest);
    if (!around || around[DIGEST_TEXT - 1] != ':')
        return HF_OK;
    around += DIGEST_TEXT;
    result = hf_once_read(store, key, &once);
    if (result != HF_OK)
        return error_set(err, result, "%s", hf_error());
    snprintf(token, sizeof token, "%llu", (unsigned long long)hf_once_token(once));
    runs = hf_once_state(once) == HF_ONCE_RUNNING && strcspn(around, " ") == strlen(token) &&
           strncmp(around, token, strlen(token)) == 0;
    hf_once_free(once);
    if (!runs)
        return HF_OK;
    return error_set(err, HF_EINVAL,
                     "this job is the run of '%.200s' and would wait for itself: ask for it in the "
                     "outermost command",
                     printable(key));
}
