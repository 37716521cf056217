/* sequencer.c: a hold as one printable string, for a third party to check. base/sequencer.h has the
 * form of it. */
#include "base/sequencer.h"

#include "client/client.h"

#include <string.h>

_Static_assert(SEQUENCER_STORE_MAX == 64, "as long as an engine's id may be");

/* The store is another one than when it was granted, or was taken up: does that have it, too? */
static int confirm_era(hf_lock *lock, uint32_t era, struct error_text *err)
{
    int result;

    if (atomic_load(&lock->era) == era)
        return HF_OK;
    result = lock_renew(lock, err);
    if (result == HF_OK)
        atomic_store(&lock->era, era);
    return result;
}

static int write_sequencer(hf_lock *lock, char *ret_text, size_t size, struct error_text *err)
{
    struct sequencer sequencer = {.mode = lock->claim.mode, .token = lock->claim.token};
    char text[HF_SEQUENCER_MAX];
    int result = store_id(lock->store, sequencer.store, err);
    size_t length;

    if (result == HF_OK)
        result = confirm_era(lock, atomic_load(&lock->store->eras), err);
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
        result = write_sequencer((hf_lock *)(uintptr_t)lock, ret_text, size, &err);
    return failure_keep(result, &err);
}

/* An id that is remembered is not enough to refuse. */
static int compare_id(hf_store *store, const char *expected, struct error_text *err)
{
    char id[SEQUENCER_STORE_MAX + 1];
    int result = store_id(store, id, err);

    if (result == HF_OK && strcmp(id, expected) != 0) {
        store_forget_id(store);
        result = store_id(store, id, err);
    }
    if (result == HF_OK && strcmp(id, expected) != 0)
        return error_set(err, HF_ESTORE,
                         "this sequencer is of the store %s, and this is the store %s", expected,
                         id);
    return result;
}

/* The id is compared last, because the question about the hold may have made a connection to another store
 * than the one whose id is known. */
static int check_sequencer(hf_store *store, const struct sequencer *sequencer,
                           struct error_text *err)
{
    struct error_text why = {""};
    int mode = sequencer->mode;
    int found = query_mode(store, sequencer->name, sequencer->token, &mode, &why), same;

    if (is_transient(found)) {
        *err = why;
        return found;
    }
    if (found == HF_ELOST)
        store_forget_id(store);
    same = compare_id(store, sequencer->store, err);
    if (same == HF_OK && found != HF_OK)
        *err = why;
    if (same != HF_OK || found != HF_OK)
        return same != HF_OK ? same : found;
    if (mode != sequencer->mode)
        return error_set(err, HF_ELOST,
                         "the hold of '%.100s' with token %llu is not held as the sequencer says",
                         sequencer->name, (unsigned long long)sequencer->token);
    return HF_OK;
}

int hf_check_sequencer(hf_store *store, const char *text)
{
    struct error_text err = {""};
    struct sequencer sequencer;
    int result = store_check(store, &err);

    if (result == HF_OK)
        result =
            sequencer_parse(text, text ? strnlen(text, HF_SEQUENCER_MAX) : 0, &sequencer, &err);
    if (result == HF_OK)
        result = check_sequencer(store, &sequencer, &err);
    return failure_keep(result, &err);
}
