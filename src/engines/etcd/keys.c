/* keys.c: names to keys and back, and what is in a value.
 *
 *     PREFIX/NAME/8f3a…           a lock, as `etcdctl lock PREFIX/NAME` makes it, and no other name's key begins so:
 *                                 a '/' in a name is written %2F, and a '%' is written %25
 *     PREFIX/%once/KEY/8f3a…      whoever runs a once-record, or waits for it
 *     PREFIX/%once/KEY/!run       that it was begun: if whoever did so is gone, it died over it
 *     PREFIX/%once/KEY/!result    what came out
 *
 * A value is "hf1 MODE PERMITS TTL SINCE OWNER": a letter, three decimal numbers (both times in ms), and all that is left is the owner. What is
 * not of that form is somebody else's. */
#include "base/clock.h"
#include "base/sha256.h"
#include "base/text.h"
#include "engines/etcd/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ONCE_PART "%once/"
#define NUMBER_DIGITS_MAX 16 /* of a lease, in hex */

static size_t encode(const char *name, char *ret_text)
{
    size_t used = 0;

    for (; *name; name++) {
        if (*name == '/' || *name == '%') {
            memcpy(ret_text + used, *name == '/' ? "%2F" : "%25", 3);
            used += 3;
        } else {
            ret_text[used++] = *name;
        }
    }
    return used;
}

void place_of_name(const struct engine_store *store, const char *name, bool once,
                   struct place *ret_place)
{
    size_t used = store->prefix_size;

    memcpy(ret_place->bytes, store->prefix, used);
    if (once) {
        memcpy(ret_place->bytes + used, ONCE_PART, strlen(ONCE_PART));
        used += strlen(ONCE_PART);
    }
    used += encode(name, ret_place->bytes + used);
    ret_place->bytes[used++] = '/';
    ret_place->bytes[used] = '\0';
    ret_place->size = used;
}

static bool decode(const char *text, size_t size, char ret_name[HF_NAME_MAX + 1])
{
    size_t used = 0;

    for (size_t i = 0; i < size; i++) {
        char c = text[i];

        if (c == '%') {
            if (size - i < 3 ||
                (memcmp(text + i, "%2F", 3) != 0 && memcmp(text + i, "%25", 3) != 0))
                return false;
            c = text[i + 2] == 'F' ? '/' : '%';
            i += 2;
        }
        if (c == '\0' || used == HF_NAME_MAX)
            return false;
        ret_name[used++] = c;
    }
    ret_name[used] = '\0';
    return used > 0;
}

bool place_name_in(const struct engine_store *store, const char *key, size_t size,
                   char ret_name[HF_NAME_MAX + 1])
{
    const char *slash, *tail;
    size_t tail_size;

    if (size < store->prefix_size || memcmp(key, store->prefix, store->prefix_size) != 0)
        return false;
    key += store->prefix_size;
    size -= store->prefix_size;
    slash = memchr(key, '/', size);
    if (!slash)
        return false;
    tail = slash + 1;
    tail_size = (size_t)(key + size - tail);
    if (tail_size < 1 || tail_size > NUMBER_DIGITS_MAX ||
        strspn(tail, "0123456789abcdef") != tail_size)
        return false;
    return decode(key, (size_t)(slash - key), ret_name);
}

int64_t key_number(const char *lease)
{
    unsigned char digest[SHA256_SIZE];
    uint64_t number = 0;

    sha256(lease, strlen(lease), digest);
    for (int i = 0; i < 8; i++)
        number = number << 8 | digest[i];
    number = (number & INT64_MAX) & ~(uint64_t)LEASE_SHARED;
    return number ? (int64_t)number : 2;
}

/* ---- values ---------------------------------------------------------------------------------- */

void value_of_claim(const struct engine_claim *claim, struct value *ret_value)
{
    *ret_value = (struct value){.mode = claim->mode == HF_SHARED   ? VALUE_SHARED
                                        : claim->mode == HF_PERMIT ? VALUE_PERMIT
                                                                   : VALUE_EXCLUSIVE,
                                .permits = claim->mode == HF_PERMIT ? claim->permits : 0,
                                .ttl_ms = claim->ttl_ms,
                                .since_ms = clock_wall_ms()};
    snprintf(ret_value->owner, sizeof ret_value->owner, "%s", claim->owner ? claim->owner : "");
}

size_t value_write(const struct value *value, char ret_bytes[ETCD_VALUE_MAX])
{
    int size =
        snprintf(ret_bytes, ETCD_VALUE_MAX, "hf1 %c %" PRIu32 " %" PRId64 " %" PRId64 " %s",
                 (char)value->mode, value->permits, value->ttl_ms, value->since_ms, value->owner);

    return size < 0 ? 0 : (size_t)size;
}

/* A number and the blank behind it, and moves on. */
static bool next_number(const char **at, const char *end, int64_t max, int64_t *ret_number)
{
    int64_t number = 0;
    const char *from = *at;

    while (*at < end && **at >= '0' && **at <= '9') {
        if (number > (max - (**at - '0')) / 10)
            return false;
        number = number * 10 + (**at - '0');
        ++*at;
    }
    if (*at == from || *at == end || **at != ' ')
        return false;
    ++*at;
    *ret_number = number;
    return true;
}

void value_read(const char *bytes, size_t size, struct value *ret_value)
{
    const char *at = bytes + 6, *end = bytes + size;
    struct value value = {.mode = VALUE_FOREIGN};
    int64_t permits;

    *ret_value = (struct value){.mode = VALUE_FOREIGN};
    if (size < 6 || memcmp(bytes, "hf1 ", 4) != 0 || !bytes[4] || !strchr("xspb", bytes[4]) ||
        bytes[5] != ' ' || !next_number(&at, end, HF_PERMITS_MAX, &permits) ||
        !next_number(&at, end, HF_TTL_MAX_MS, &value.ttl_ms) ||
        !next_number(&at, end, INT64_MAX / 16, &value.since_ms) ||
        (size_t)(end - at) > HF_OWNER_MAX || memchr(at, '\0', (size_t)(end - at)) ||
        (bytes[4] == VALUE_PERMIT) != (permits > 0))
        return;
    value.mode = (enum value_mode)bytes[4];
    value.permits = (uint32_t)permits;
    memcpy(value.owner, at, (size_t)(end - at));
    *ret_value = value;
}

int value_hf_mode(const struct value *value)
{
    return value->mode == VALUE_SHARED   ? HF_SHARED
           : value->mode == VALUE_PERMIT ? HF_PERMIT
                                         : HF_EXCLUSIVE;
}
