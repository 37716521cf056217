#include "table.h"

#include "base/clock.h"
#include "base/futex.h"
#include "base/random.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- the mapping ----------------------------------------------------------------------------- */

static void initialise(struct table *table)
{
    pthread_mutexattr_t attributes;
    unsigned char id[(TABLE_ID_SIZE - 1) / 2];

    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&table->mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    random_fill(id, sizeof id);
    text_hex(id, sizeof id, table->id);
    atomic_store(&table->ready, TABLE_READY);
}

static int map_file(int fd, struct table **ret_table)
{
    struct table *table;
    struct stat st;

    /* One opener at a time looks at an unfinished file. */
    if (flock(fd, LOCK_EX) < 0 || fstat(fd, &st) < 0)
        return -1;
    if (st.st_size < (off_t)sizeof *table && ftruncate(fd, sizeof *table) < 0)
        return -1;
    table = mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (table == MAP_FAILED)
        return -1;
    if (atomic_load(&table->ready) != TABLE_READY)
        initialise(table);
    flock(fd, LOCK_UN); /* closing is not enough: the mapping keeps the open file alive */
    *ret_table = table;
    return 0;
}

int table_open(const char *path, struct table **ret_table, struct error_text *err)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    int result = HF_OK;

    if (fd < 0 || map_file(fd, ret_table) < 0)
        result = error_set_errno(err, HF_EREFUSED, errno, "test store %s", path);
    if (fd >= 0)
        close(fd);
    return result;
}

void table_close(struct table *table)
{
    munmap(table, sizeof *table);
}

bool table_lock(struct table *table, int64_t deadline_ms)
{
    struct timespec until;
    int64_t left_ms = deadline_ms - clock_boot_ms();
    int result;

    if (left_ms < 0)
        left_ms = 0;
    if (left_ms > INT_MAX)
        left_ms = INT_MAX;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)(left_ms / 1000);
    until.tv_nsec += (long)(left_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    result = pthread_mutex_timedlock(&table->mutex, &until);
    if (result == EOWNERDEAD) {
        pthread_mutex_consistent(&table->mutex);
        result = 0;
    }
    INVARIANT(result == 0 || result == ETIMEDOUT);
    return result == 0;
}

void table_unlock(struct table *table)
{
    pthread_mutex_unlock(&table->mutex);
}

void table_changed(struct table *table)
{
    atomic_fetch_add(&table->changes, 1);
    futex_wake(&table->changes, FUTEX_MASK_ALL, INT_MAX);
}

int64_t table_now_ms(const struct table *table)
{
    return clock_boot_ms() + table->shift_ms;
}

/* ---- names ----------------------------------------------------------------------------------- */

struct table_name *table_find_name(struct table *table, const char *name)
{
    for (int32_t i = 0; i < table->names_used; i++)
        if (strcmp(table->names[i].name, name) == 0)
            return &table->names[i];
    return NULL;
}

struct table_name *table_take_name(struct table *table, const char *name)
{
    struct table_name *slot = table_find_name(table, name);

    if (slot)
        return slot;
    /* Tokens grow over all names, so forgetting an idle one loses nothing; the latest go last. */
    if (table->names_used < TABLE_NAMES_MAX) {
        slot = &table->names[table->names_used++];
    } else {
        for (int32_t i = 0; i < TABLE_NAMES_MAX; i++) {
            struct table_name *at = &table->names[i];

            if (at->claims == 0 && at->record == 0 && at->withheld_ms <= table_now_ms(table) &&
                (!slot || at->stamp < slot->stamp))
                slot = at;
        }
        if (!slot)
            return NULL;
    }
    *slot = (struct table_name){.stamp = ++table->stamp};
    memcpy(slot->name, name, strlen(name) + 1);
    return slot;
}

/* ---- ended leases ---------------------------------------------------------------------------- */

static uint32_t hash_lease(const char *lease)
{
    uint32_t hash = 2166136261u; /* FNV-1a */

    for (; *lease; lease++)
        hash = (hash ^ (unsigned char)*lease) * 16777619u;
    return hash;
}

static struct table_ended *remember(struct table *table, const char *lease, int64_t ttl_ms)
{
    int64_t until_ms = clock_after(table_now_ms(table), ttl_ms);
    struct table_ended *oldest = NULL;
    uint32_t at = hash_lease(lease);

    for (uint32_t i = 0; i < TABLE_ENDED_PROBES; i++) {
        struct table_ended *slot = &table->ended[(at + i) % TABLE_ENDED_MAX];

        if (strcmp(slot->lease, lease) == 0) {
            oldest = slot;
            break;
        }
        if (!oldest || slot->until_ms < oldest->until_ms)
            oldest = slot;
    }
    memcpy(oldest->lease, lease, strnlen(lease, HF_LEASE_MAX) + 1);
    oldest->until_ms = until_ms;
    oldest->died = 0;
    return oldest;
}

void table_remember(struct table *table, const char *lease, int64_t ttl_ms)
{
    remember(table, lease, ttl_ms);
}

static const struct table_ended *find_ended(struct table *table, const char *lease)
{
    uint32_t at = hash_lease(lease);

    for (uint32_t i = 0; i < TABLE_ENDED_PROBES; i++) {
        const struct table_ended *slot = &table->ended[(at + i) % TABLE_ENDED_MAX];

        if (strcmp(slot->lease, lease) == 0)
            return slot->until_ms > table_now_ms(table) ? slot : NULL;
    }
    return NULL;
}

bool table_is_ended(struct table *table, const char *lease)
{
    return find_ended(table, lease) != NULL;
}

uint64_t table_died_for(struct table *table, const char *lease)
{
    const struct table_ended *ended = find_ended(table, lease);

    return ended ? ended->died : 0;
}

/* ---- once-records ---------------------------------------------------------------------------- */

struct table_record *table_record_of(struct table *table, const struct table_name *name)
{
    return name && name->record ? &table->records[name->record - 1] : NULL;
}

void table_forget_record(struct table *table, struct table_name *name)
{
    if (name->record)
        table->records[name->record - 1].used = false;
    name->record = 0;
}

bool table_set_record(struct table *table, struct table_name *name, uint64_t token,
                      const void *bytes, size_t size, int64_t until_ms)
{
    table_forget_record(table, name);
    for (int32_t i = 0; i < TABLE_RECORDS_MAX; i++) {
        struct table_record *record = &table->records[i];

        if (record->used)
            continue;
        record->done = bytes != NULL;
        record->token = token;
        record->until_ms = until_ms;
        record->size = (uint32_t)size;
        if (size > 0)
            memcpy(record->bytes, bytes, size);
        record->used = true;
        name->record = i + 1;
        name->stamp = ++table->stamp;
        table_changed(table);
        return true;
    }
    return false;
}

/* ---- claims ---------------------------------------------------------------------------------- */

struct table_claim *table_find(struct table *table, const char *lease)
{
    for (int32_t i = 0; i < table->claims_used; i++)
        if (table->claims[i].state != CLAIM_FREE && strcmp(table->claims[i].lease, lease) == 0)
            return &table->claims[i];
    return NULL;
}

static bool of_name(const struct table *table, const struct table_claim *claim,
                    const struct table_name *name)
{
    return &table->names[claim->name] == name;
}

bool table_could_hold(struct table *table, const struct table_name *name, int mode,
                      uint32_t permits)
{
    uint32_t holders = 0;

    if (name->withheld_ms > table_now_ms(table))
        return false;
    if (name->claims == 0 || table->grants_twice)
        return true;
    for (int32_t i = 0; i < table->claims_used; i++) {
        const struct table_claim *other = &table->claims[i];

        if (other->state != CLAIM_HELD || !of_name(table, other, name))
            continue;
        if (mode == HF_EXCLUSIVE || other->mode != mode)
            return false;
        holders++;
    }
    return mode != HF_PERMIT || holders < permits;
}

static struct table_claim *first_waiter(struct table *table, const struct table_name *name)
{
    struct table_claim *first = NULL;

    for (int32_t i = 0; i < table->claims_used; i++) {
        struct table_claim *claim = &table->claims[i];

        if (claim->state == CLAIM_QUEUED && of_name(table, claim, name) &&
            (!first || claim->place < first->place))
            first = claim;
    }
    return first;
}

bool table_has_waiters(struct table *table, const struct table_name *name)
{
    return name->claims > 0 && first_waiter(table, name) != NULL;
}

/* Does the first who waits for a once-record rather not replace a runner that died? */
static bool declines(struct table *table, const struct table_name *name,
                     const struct table_claim *claim)
{
    return claim->no_heir && table_record_of(table, name);
}

/* In the order of arrival, and nobody overtakes: a writer at the head stops the readers behind it. */
static bool move_queue(struct table *table, struct table_name *name)
{
    struct table_claim *first;
    bool moved = false;

    name->dirty = false;
    while ((first = first_waiter(table, name)) &&
           table_could_hold(table, name, first->mode, first->permits)) {
        if (declines(table, name, first)) {
            uint64_t died = table_record_of(table, name)->token;

            table_end(table, first);
            remember(table, first->lease, first->ttl_ms)->died = died;
            continue;
        }
        table_forget_record(table, name);
        first->token = ++table->last_token;
        first->since_ms = table_now_ms(table);
        first->state = CLAIM_HELD;
        name->stamp = ++table->stamp;
        moved = true;
    }
    return moved;
}

struct table_claim *table_join(struct table *table, struct table_name *name,
                               const struct table_claim *like)
{
    int32_t slot = 0;
    struct table_claim *claim;

    while (slot < TABLE_CLAIMS_MAX && table->claims[slot].state != CLAIM_FREE)
        slot++;
    if (slot == TABLE_CLAIMS_MAX)
        return NULL;
    if (slot >= table->claims_used)
        table->claims_used = slot + 1;
    claim = &table->claims[slot];
    *claim = *like;
    claim->state = CLAIM_FREE;
    claim->name = (int32_t)(name - table->names);
    claim->since_ms = table_now_ms(table);
    claim->expires_ms = clock_after(claim->since_ms, claim->ttl_ms);
    claim->place = ++table->last_place;
    claim->token = 0;
    name->claims++;
    claim->state = CLAIM_QUEUED;
    if (move_queue(table, name))
        table_changed(table);
    return claim;
}

void table_end(struct table *table, struct table_claim *claim)
{
    struct table_name *name = &table->names[claim->name];

    table_remember(table, claim->lease, claim->ttl_ms);
    if (claim->state == CLAIM_HELD)
        name->stamp = ++table->stamp;
    claim->state = CLAIM_FREE;
    name->claims--;
    name->dirty = true;
    table_changed(table);
}

void table_expire(struct table *table, struct table_claim *claim, int64_t at_ms)
{
    struct table_name *name = &table->names[claim->name];
    int64_t until_ms = clock_after(at_ms, claim->delay_ms);

    if (claim->state == CLAIM_HELD && name->withheld_ms < until_ms)
        name->withheld_ms = until_ms;
    if (claim->state == CLAIM_HELD && claim->once)
        table_set_record(table, name, claim->token, NULL, 0, clock_after(at_ms, claim->death_ms));
    table_end(table, claim);
}

void table_end_waiters(struct table *table, const struct table_name *name)
{
    for (int32_t i = 0; i < table->claims_used; i++) {
        struct table_claim *claim = &table->claims[i];

        if (claim->state == CLAIM_QUEUED && of_name(table, claim, name))
            table_end(table, claim);
    }
}

/* ---- time ------------------------------------------------------------------------------------ */

void table_settle(struct table *table)
{
    int64_t now_ms = table_now_ms(table);
    bool moved = false;

    for (int32_t i = 0; i < table->claims_used; i++)
        if (table->claims[i].state != CLAIM_FREE && table->claims[i].expires_ms <= now_ms)
            table_expire(table, &table->claims[i], table->claims[i].expires_ms);
    for (int32_t i = 0; i < table->names_used; i++) {
        struct table_name *name = &table->names[i];

        if (name->withheld_ms != 0 && name->withheld_ms <= now_ms) {
            name->withheld_ms = 0;
            /* To those who wait without a queue this is news, too. */
            name->stamp = ++table->stamp;
            name->dirty = moved = true;
        }
        if (name->dirty)
            moved |= move_queue(table, name);
        if (name->record && table->records[name->record - 1].until_ms <= now_ms)
            table_forget_record(table, name);
    }
    if (moved)
        table_changed(table);
}

int64_t table_next_ms(const struct table *table)
{
    int64_t next_ms = CLOCK_NEVER;

    for (int32_t i = 0; i < table->claims_used; i++)
        if (table->claims[i].state != CLAIM_FREE && table->claims[i].expires_ms < next_ms)
            next_ms = table->claims[i].expires_ms;
    for (int32_t i = 0; i < table->names_used; i++)
        if (table->names[i].withheld_ms != 0 && table->names[i].withheld_ms < next_ms)
            next_ms = table->names[i].withheld_ms;
    return next_ms == CLOCK_NEVER ? CLOCK_NEVER : next_ms - table->shift_ms;
}
