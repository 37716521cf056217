/* contenders.c: the queue of a name, made of the names of nodes.
 *
 * ZooKeeper ends the name of each with a counter of its parent, 10 digits, signed: after 2^31 - 1 comes -2^31. Those in
 * one queue are never 2^31 apart, so their difference, wrapped, says who came first.
 *
 * Nobody is granted before all that it conflicts with and that came before it are gone. So a contender whose list is out
 * of date waits too long, and is never granted too early: what its list lacks and came before it is gone for good.
 *
 * Modes. The first contender settles how the name is used: as a lock (exclusive, shared), or with N permits. Who asks
 * for another use is refused, and goes. Until it has gone, those behind it wait: if they passed it, and the first were
 * gone, it would be first, and both would be granted. */
#include "base/switches.h"
#include "engines/zookeeper/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEQUENCE_DIGITS 10
#define KAZOO_MARK "__lock__"
#define CURATOR_MARK "lock-"
#define CURATOR_PREFIX "_c_"
#define ID_LENGTH (ZK_ID_SIZE - 1)

static bool is_hex(const char *text, size_t length)
{
    return strspn(text, "0123456789abcdef") >= length;
}

/* The sequence at the end. ret_length: of what is before it. A '-' before it may be the sign, or belong to the name. */
static bool take_sequence(const char *name, bool negative, size_t *ret_length,
                          int32_t *ret_sequence)
{
    size_t length = strlen(name), digits = 0;
    int64_t value = 0;

    while (digits < SEQUENCE_DIGITS && digits < length && name[length - 1 - digits] >= '0' &&
           name[length - 1 - digits] <= '9')
        digits++;
    /* "%010d": the sign is one of the ten. */
    if (digits + negative < SEQUENCE_DIGITS || digits + negative > length ||
        (negative && name[length - 1 - digits] != '-'))
        return false;
    for (size_t i = length - digits; i < length; i++)
        value = value * 10 + (name[i] - '0');
    value = negative ? -value : value;
    if (value > INT32_MAX || value < INT32_MIN)
        return false;
    *ret_sequence = (int32_t)value;
    *ret_length = length - digits - negative;
    return true;
}

static bool ends_with(const char *name, size_t length, const char *mark)
{
    size_t size = strlen(mark);

    return length >= size && memcmp(name + length - size, mark, size) == 0;
}

/* x-ID-, s-ID-, pN-ID- */
static bool parse_ours(const char *name, size_t length, struct contender *ret)
{
    const char *at = name + 1;
    uint64_t permits = 0;

    if (name[0] == 'p')
        for (; *at >= '0' && *at <= '9' && permits <= UINT32_MAX; at++)
            permits = permits * 10 + (uint64_t)(*at - '0');
    if (length != (size_t)(at - name) + 1 + ID_LENGTH + 1 || at[0] != '-' ||
        !is_hex(at + 1, ID_LENGTH) || at[1 + ID_LENGTH] != '-')
        return false;
    if (name[0] != 'x' && name[0] != 's' && (name[0] != 'p' || permits < 1 || permits > UINT32_MAX))
        return false;
    ret->mode = name[0] == 'x' ? HF_EXCLUSIVE : name[0] == 's' ? HF_SHARED : HF_PERMIT;
    ret->permits = (uint32_t)permits;
    ret->id = at + 1;
    return true;
}

/* A UUID is 32 digits in groups of 8-4-4-4-12. Compares or copies without the dashes. */
static const int uuid_groups[] = {8, 4, 4, 4, 12};
#define UUID_LENGTH 36

static bool parse_curator(const char *name, size_t length, struct contender *ret)
{
    if (!ends_with(name, length, CURATOR_MARK))
        return false;
    /* With its protection: _c_UUID-lock-. */
    if (length == strlen(CURATOR_PREFIX) + UUID_LENGTH + 1 + strlen(CURATOR_MARK) &&
        strncmp(name, CURATOR_PREFIX, strlen(CURATOR_PREFIX)) == 0)
        ret->id = name + strlen(CURATOR_PREFIX);
    return true;
}

static bool parse_kazoo(const char *name, size_t length, struct contender *ret)
{
    if (!ends_with(name, length, KAZOO_MARK))
        return false;
    if (length == ID_LENGTH + strlen(KAZOO_MARK) && is_hex(name, ID_LENGTH))
        ret->id = name;
    return true;
}

static bool parse_rest(enum zk_names names, const char *name, size_t length, struct contender *ret)
{
    if (names == ZK_NAMES_OURS)
        return parse_ours(name, length, ret);
    return names == ZK_NAMES_KAZOO ? parse_kazoo(name, length, ret)
                                   : parse_curator(name, length, ret);
}

bool contender_parse(enum zk_names names, char *name, struct contender *ret)
{
    size_t length = strlen(name);

    if (length >= ZK_CHILD_MAX)
        return false;
    *ret = (struct contender){.name = name, .mode = HF_EXCLUSIVE};
    return (take_sequence(name, false, &length, &ret->sequence) &&
            parse_rest(names, name, length, ret)) ||
           (take_sequence(name, true, &length, &ret->sequence) &&
            parse_rest(names, name, length, ret));
}

static void write_uuid(const char *id, char *ret_text)
{
    for (size_t group = 0; group < sizeof uuid_groups / sizeof *uuid_groups; group++) {
        if (group > 0)
            *ret_text++ = '-';
        memcpy(ret_text, id, (size_t)uuid_groups[group]);
        ret_text += uuid_groups[group];
        id += uuid_groups[group];
    }
    *ret_text = '\0';
}

void contender_name(enum zk_names names, int mode, uint32_t permits, const char *id,
                    char ret_name[ZK_CHILD_MAX])
{
    char uuid[UUID_LENGTH + 1];

    write_uuid(id, uuid);
    if (names == ZK_NAMES_KAZOO)
        snprintf(ret_name, ZK_CHILD_MAX, "%s" KAZOO_MARK, id);
    else if (names == ZK_NAMES_CURATOR)
        snprintf(ret_name, ZK_CHILD_MAX, CURATOR_PREFIX "%s-" CURATOR_MARK, uuid);
    else if (mode == HF_PERMIT)
        snprintf(ret_name, ZK_CHILD_MAX, "p%u-%s-", permits, id);
    else
        snprintf(ret_name, ZK_CHILD_MAX, "%c-%s-", mode == HF_SHARED ? 's' : 'x', id);
}

static int compare(const void *a, const void *b)
{
    const struct contender *first = a, *second = b;
    int32_t apart = (int32_t)((uint32_t)first->sequence - (uint32_t)second->sequence);

    if (SWITCHED(SWITCH_ZK_NO_WRAP))
        apart = first->sequence < second->sequence ? -1 : 1;
    return (apart > 0) - (apart < 0);
}

void contenders_sort(struct contender *contenders, int count)
{
    if (count > 1)
        qsort(contenders, (size_t)count, sizeof *contenders, compare);
}

/* ---- who holds, and who waits for whom ------------------------------------------------------- */

/* 0: as a lock; else the number of permits. */
static uint32_t use_of(const struct contender *contender)
{
    return contender->mode == HF_PERMIT ? contender->permits : 0;
}

static bool conflicts(const struct contender *before, const struct contender *own)
{
    return use_of(before) != use_of(own) ||
           (own->mode != HF_PERMIT && (own->mode == HF_EXCLUSIVE || before->mode == HF_EXCLUSIVE));
}

enum zk_verdict contenders_judge(const struct contender *contenders, int count, int own,
                                 int *ret_watch)
{
    const struct contender *self = &contenders[own];

    INVARIANT(own >= 0 && own < count);
    if (use_of(&contenders[0]) != use_of(self))
        return ZK_MISFITS;
    for (int i = own - 1; i >= 0; i--)
        if (conflicts(&contenders[i], self)) {
            *ret_watch = i;
            return ZK_WAITS;
        }
    if (self->mode != HF_PERMIT || (uint32_t)own < self->permits)
        return ZK_HOLDS;
    /* All before us have permits, or wait for one. The first who waits looks at every change, because any of the holders
     * may go first; each of the others waits for the one before it to go, or to change its data: with that a waiter that
     * has become a holder makes room for the next one to be first. So each change wakes one. */
    if ((uint32_t)own == self->permits)
        return ZK_WAITS_CHANGES;
    *ret_watch = own - 1;
    return ZK_WAITS;
}

/* ---- lists ----------------------------------------------------------------------------------- */

bool queue_read(enum zk_names names, const struct String_vector *list, struct queue *ret_queue)
{
    *ret_queue =
        (struct queue){.contenders = calloc((size_t)list->count + 1, sizeof(struct contender))};
    if (!ret_queue->contenders)
        return false;
    for (int i = 0; i < list->count; i++) {
        if (contender_parse(names, list->data[i], &ret_queue->contenders[ret_queue->count]))
            ret_queue->count++;
        else
            ret_queue->foreign = list->data[i];
    }
    contenders_sort(ret_queue->contenders, ret_queue->count);
    return true;
}

void queue_free(struct queue *queue)
{
    free(queue->contenders);
    *queue = (struct queue){0};
}

int queue_find(const struct queue *queue, const char *id)
{
    char uuid[UUID_LENGTH + 1];

    write_uuid(id, uuid);
    for (int i = 0; i < queue->count; i++) {
        const char *its = queue->contenders[i].id;

        if (its && (strncmp(its, id, ID_LENGTH) == 0 || strncmp(its, uuid, UUID_LENGTH) == 0))
            return i;
    }
    return -1;
}
