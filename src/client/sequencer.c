/* sequencer.c: a hold as one printable string, for a third party to check. base/sequencer.h has the
 * form of it. */
#include "base/sequencer.h"

#include "client/client.h"

#include <string.h>

_Static_assert(SEQUENCER_STORE_MAX == 64, "as long as an engine's id may be");

static int write_sequencer(const hf_lock *lock, char *ret_text, size_t size, struct error_text *err)
{
    struct sequencer sequencer = {.mode = lock->claim.mode, .token = lock->claim.token};
    char text[HF_SEQUENCER_MAX];
    int result = store_id(lock->store, sequencer.store, err);
    size_t length;

    if (result != HF_OK)
        return result;
    memcpy(sequencer.name, lock->claim.name, strlen(lock->claim.name) + 1);
    length = sequencer_write(&sequencer, text);
    if (!ret_text || length >= size)
        return error_set(err, HF_EINVAL, "the sequencer needs room for %zu bytes", length + 1);
    memcpy(ret_text, text, length + 1);
    return HF_OK;
}

int hf_lock_sequencer(const hf_lock *lock, char *ret_text, size_t size)
{
    struct error_text err = {""};
    int result =
        lock ? store_check(lock->store, &err) : error_set(&err, HF_EINVAL, "no lock given");

    if (result == HF_OK && lock->claim.once)
        result = error_set(&err, HF_EINVAL, "a sequencer is of a lock, not of a once-record");
    if (result == HF_OK)
        result = write_sequencer(lock, ret_text, size, &err);
    return failure_keep(result, &err);
}

int hf_check_sequencer(hf_store *store, const char *text)
{
    char id[SEQUENCER_STORE_MAX + 1];
    struct error_text err = {""};
    struct sequencer sequencer = {.mode = HF_EXCLUSIVE};
    int mode, result = store_check(store, &err);

    if (result == HF_OK)
        result =
            sequencer_parse(text, text ? strnlen(text, HF_SEQUENCER_MAX) : 0, &sequencer, &err);
    if (result == HF_OK)
        result = store_id(store, id, &err);
    if (result == HF_OK && strcmp(id, sequencer.store) != 0)
        result = error_set(&err, HF_ESTORE,
                           "this sequencer is of the store %s, and this is the store %s",
                           sequencer.store, id);
    if (result == HF_OK)
        result = query_mode(store, sequencer.name, sequencer.token, &mode, &err);
    if (result == HF_OK && mode != sequencer.mode)
        result = error_set(&err, HF_ELOST,
                           "the hold of '%.100s' with token %llu is not held as the sequencer says",
                           sequencer.name, (unsigned long long)sequencer.token);
    return failure_keep(result, &err);
}
