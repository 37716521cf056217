/* sequencer.c: a hold as one printable string, for a third party to check.
 *
 *     hf1 . STORE-ID . x|s|p . TOKEN . NAME
 *
 * Store id and name are percent-encoded. The id's dots are encoded too (%2e), so the first four
 * dots of a sequencer are always the ones between its parts; the name comes last and keeps its
 * dots, like
 * - _ ~ / and :, so that the usual names can be read. */
#include "base/text.h"
#include "client/client.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ID_KEEPS "-"
#define NAME_KEEPS "-_.~/:"
#define MODE_LETTERS "xsp" /* in the order of enum hf_mode */
#define ENCODED_ID_MAX (3 * 64 + 1)

static int store_id_encoded(hf_store *store, char ret_text[ENCODED_ID_MAX], struct error_text *err)
{
    char id[65];
    int result = store_id(store, id, err);

    if (result == HF_OK)
        text_percent_encode(id, strlen(id), ID_KEEPS, ret_text, ENCODED_ID_MAX);
    return result;
}

static int write_sequencer(const hf_lock *lock, char *ret_text, size_t size, struct error_text *err)
{
    char id[ENCODED_ID_MAX], name[3 * HF_NAME_MAX + 1], text[HF_SEQUENCER_MAX];
    int result = store_id_encoded(lock->store, id, err), length;

    if (result != HF_OK)
        return result;
    text_percent_encode(lock->claim.name, strlen(lock->claim.name), NAME_KEEPS, name, sizeof name);
    length = snprintf(text, sizeof text, "hf1.%s.%c.%" PRIu64 ".%s", id,
                      MODE_LETTERS[lock->claim.mode], lock->claim.token, name);
    INVARIANT(length > 0 && (size_t)length < sizeof text);
    if (!ret_text || (size_t)length >= size)
        return error_set(err, HF_EINVAL, "the sequencer needs room for %d bytes", length + 1);
    memcpy(ret_text, text, (size_t)length + 1);
    return HF_OK;
}

int hf_lock_sequencer(const hf_lock *lock, char *ret_text, size_t size)
{
    struct error_text err = {""};
    int result =
        lock ? store_check(lock->store, &err) : error_set(&err, HF_EINVAL, "no lock given");

    if (result == HF_OK)
        result = write_sequencer(lock, ret_text, size, &err);
    return failure_keep(result, &err);
}

struct parts {
    char id[ENCODED_ID_MAX];
    uint64_t token;
    char name[HF_NAME_MAX + 1];
};

/* The text up to the next dot, which is passed over. False if there is none or it is too long. */
static bool take_part(const char **text, char *ret_part, size_t size)
{
    const char *dot = strchr(*text, '.');
    size_t length = dot ? (size_t)(dot - *text) : 0;

    if (length == 0 || length >= size)
        return false;
    memcpy(ret_part, *text, length);
    ret_part[length] = '\0';
    *text = dot + 1;
    return true;
}

static int parse(const char *text, struct parts *ret_parts, struct error_text *err)
{
    char version[8], mode[4], token[24];

    if (!text || strnlen(text, HF_SEQUENCER_MAX) >= HF_SEQUENCER_MAX ||
        !take_part(&text, version, sizeof version) || strcmp(version, "hf1") != 0 ||
        !take_part(&text, ret_parts->id, sizeof ret_parts->id) ||
        !take_part(&text, mode, sizeof mode) || strlen(mode) != 1 ||
        !strchr(MODE_LETTERS, mode[0]) || !take_part(&text, token, sizeof token) ||
        !text_to_u64(token, HF_TOKEN_MAX, &ret_parts->token) || ret_parts->token == 0 || !*text ||
        !text_percent_decode(text, strlen(text), ret_parts->name, sizeof ret_parts->name))
        return error_set(err, HF_EINVAL, "this is not a sequencer (hf1.STORE.MODE.TOKEN.NAME)");
    return HF_OK;
}

int hf_check_sequencer(hf_store *store, const char *sequencer)
{
    char id[ENCODED_ID_MAX];
    struct error_text err = {""};
    struct parts parts;
    int result = store_check(store, &err);

    if (result == HF_OK)
        result = parse(sequencer, &parts, &err);
    if (result == HF_OK)
        result = store_id_encoded(store, id, &err);
    if (result == HF_OK && strcmp(id, parts.id) != 0)
        result = error_set(&err, HF_ESTORE,
                           "this sequencer is of the store %.64s, and this is the store %.64s",
                           parts.id, id);
    if (result == HF_OK)
        result = query_check(store, parts.name, parts.token, &err);
    return failure_keep(result, &err);
}
