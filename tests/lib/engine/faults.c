#include "table.h"

#include "base/clock.h"

#include <errno.h>
#include <string.h>

#define PATIENCE_MS 10000

static struct table *table_of(struct faults *faults)
{
    return (struct table *)(void *)faults;
}

static struct table *locked(struct faults *faults)
{
    struct table *table = table_of(faults);
    bool got = table_lock(table, clock_boot_ms() + PATIENCE_MS);

    INVARIANT(got);
    return table;
}

static void unlocked(struct table *table)
{
    table_unlock(table);
    table_changed(table); /* those who hang look again */
}

struct faults *faults_open(const char *path)
{
    struct table *table;

    if (table_open(path, &table, NULL) != HF_OK)
        return NULL;
    return (struct faults *)(void *)table;
}

void faults_close(struct faults *faults)
{
    if (faults)
        table_close(table_of(faults));
}

void faults_set(struct faults *faults, enum fault_kind kind, int call, int32_t count)
{
    struct table *table = locked(faults);

    for (int i = 0; i < FAULT_CALLS; i++)
        if (call == i || call == CALL_ANY)
            table->rules[kind][i] = count;
    unlocked(table);
}

void faults_delay(struct faults *faults, int call, int64_t delay_ms)
{
    struct table *table = locked(faults);

    for (int i = 0; i < FAULT_CALLS; i++)
        if (call == i || call == CALL_ANY)
            table->delay_ms[i] = delay_ms;
    unlocked(table);
}

void faults_spoil(struct faults *faults, const char *name)
{
    struct table *table = locked(faults);

    memset(table->spoilt, 0, sizeof table->spoilt);
    if (name)
        memcpy(table->spoilt, name, strnlen(name, HF_NAME_MAX));
    unlocked(table);
}

void faults_grant_twice(struct faults *faults, bool twice)
{
    struct table *table = locked(faults);

    table->grants_twice = twice;
    unlocked(table);
}

void faults_clear(struct faults *faults)
{
    struct table *table = locked(faults);

    table->spoilt[0] = '\0';
    table->grants_twice = false;
    memset(table->rules, 0, sizeof table->rules);
    memset(table->delay_ms, 0, sizeof table->delay_ms);
    unlocked(table);
}

void faults_advance(struct faults *faults, int64_t ms)
{
    struct table *table = locked(faults);

    table->shift_ms += ms;
    table_settle(table);
    unlocked(table);
}

int faults_expire(struct faults *faults, const char *name)
{
    struct table *table = locked(faults);
    int64_t now_ms = table_now_ms(table);
    int ended = 0;

    for (int32_t i = 0; i < table->claims_used; i++) {
        struct table_claim *claim = &table->claims[i];

        if (claim->state == CLAIM_FREE ||
            (name && strcmp(table->names[claim->name].name, name) != 0))
            continue;
        table_expire(table, claim, now_ms);
        ended++;
    }
    table_settle(table);
    unlocked(table);
    return ended;
}

uint64_t faults_count(struct faults *faults, int call)
{
    struct table *table = locked(faults);
    uint64_t count = 0;

    for (int i = 0; i < FAULT_CALLS; i++)
        if (call == i || call == CALL_ANY)
            count += table->counts[i];
    table_unlock(table);
    return count;
}

void faults_reset_counts(struct faults *faults)
{
    struct table *table = locked(faults);

    memset(table->counts, 0, sizeof table->counts);
    table_unlock(table);
}

int64_t faults_expiry_ms(struct faults *faults, const char *name)
{
    struct table *table = locked(faults);
    int64_t expiry_ms = 0;

    table_settle(table);
    for (int32_t i = 0; i < table->claims_used; i++) {
        const struct table_claim *claim = &table->claims[i];

        if (claim->state == CLAIM_HELD && strcmp(table->names[claim->name].name, name) == 0)
            expiry_ms = claim->expires_ms - table->shift_ms;
    }
    table_unlock(table);
    return expiry_ms;
}

const char *fault_call_name(int call)
{
    static const char *const names[] = {"acquire", "renew", "release", "abandon", "show",   "list",
                                        "check",   "break", "floor",   "id",      "finish", "read"};

    return call >= 0 && call < FAULT_CALLS ? names[call] : "all";
}
