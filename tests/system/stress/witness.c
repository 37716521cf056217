/* witness.c: who is inside, by the word of those who are. Nobody else may be, unless the library knows that whoever was there
 * has lost its lock: then hf_lock_left_ms says 0, at the latest when the next one is granted it. */
#include "stress.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static struct {
    pthread_mutex_t mutex;
    struct hold *inside;
    uint64_t token; /* the highest */
} sections[SECTIONS];

static pthread_once_t begun = PTHREAD_ONCE_INIT;

static void begin(void)
{
    for (int i = 0; i < SECTIONS; i++)
        pthread_mutex_init(&sections[i].mutex, NULL);
}

struct hold *hold_new(int section)
{
    struct hold *hold = allocate(sizeof *hold);

    pthread_once(&begun, begin);
    hold->section = section;
    return hold;
}

void section_name(int section, char *ret_text)
{
    snprintf(ret_text, TEXT_MAX, section < NAMES ? "stress-%d" : "stress-key-%d", section);
}

static void on_lost(hf_lock *lock, void *arg)
{
    struct hold *hold = arg;

    count(COUNT_LOST);
    if (atomic_load(&hold->consumed))
        violated("on_lost was called for a lock that had been given up (section %d, token %llu)",
                 hold->section, (unsigned long long)hold->token);
    if (hf_lock_left_ms(lock) != 0)
        violated("on_lost was called, and there is time left");
    usleep(100);
    if (atomic_load(&hold->consumed))
        violated("on_lost was running when its lock was given up, and nobody waited for it");
}

void hold_options(struct worker *worker, struct hold *hold, hf_options *ret_options)
{
    *ret_options = (hf_options)HF_OPTIONS_INIT;
    ret_options->wait_ms = below(worker, 3) == 0 ? 0 : (int64_t)below(worker, 400);
    ret_options->ttl_ms = stress.has_ttl ? 150 + (int64_t)below(worker, 1500) : 0;
    ret_options->max_hold_ms = below(worker, 10) == 0 ? 1 + (int64_t)below(worker, 20) : 0;
    ret_options->on_lost = on_lost;
    ret_options->arg = hold;
}

/* Before the mutex: a lock that has been lost since may have been granted to others, who have been here. */
static bool check(const struct hold *before, struct hold *hold, uint64_t highest)
{
    if (hf_lock_left_ms(hold->lock) == 0)
        return false;
    if (stress.strict && before && hf_lock_left_ms(before->lock) != 0)
        violated("two are inside section %d, with tokens %llu and %llu", hold->section,
                 (unsigned long long)before->token, (unsigned long long)hold->token);
    if (hold->token <= highest)
        violated("section %d: token %llu came after %llu", hold->section,
                 (unsigned long long)hold->token, (unsigned long long)highest);
    return true;
}

void hold_enter(struct hold *hold, hf_lock *lock)
{
    hold->lock = lock;
    hold->token = hf_lock_token(lock);
    count(COUNT_HELD);
    if (hold->section < 0)
        return;
    pthread_mutex_lock(&sections[hold->section].mutex);
    if (check(sections[hold->section].inside, hold, sections[hold->section].token)) {
        sections[hold->section].inside = hold;
        sections[hold->section].token = hold->token;
        hold->inside = true;
    }
    pthread_mutex_unlock(&sections[hold->section].mutex);
}

void hold_leave(struct hold *hold)
{
    if (!hold->inside)
        return;
    pthread_mutex_lock(&sections[hold->section].mutex);
    if (sections[hold->section].inside == hold)
        sections[hold->section].inside = NULL;
    hold->inside = false;
    pthread_mutex_unlock(&sections[hold->section].mutex);
}

void hold_over(struct hold *hold)
{
    atomic_store(&hold->consumed, true);
    bury(hold);
}
