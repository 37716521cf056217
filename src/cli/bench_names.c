#include "cli/bench_names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool bench_names_begin(struct bench_names *names, const char *prefix, size_t own)
{
    names->count = BENCH_HOT_NAMES + own;
    names->all = calloc(names->count, sizeof *names->all);
    if (!names->all)
        return false;
    pthread_mutex_init(&names->mutex, NULL);
    for (size_t i = 0; i < names->count; i++) {
        struct bench_name *name = &names->all[i];
        bool is_hot = i < BENCH_HOT_NAMES;

        pthread_mutex_init(&name->mutex, NULL);
        snprintf(name->text, sizeof name->text, "%s/%s/%zu", prefix, is_hot ? "hot" : "own",
                 is_hot ? i : i - BENCH_HOT_NAMES);
    }
    return true;
}

void bench_names_end(struct bench_names *names)
{
    for (size_t i = 0; i < names->count && names->all; i++)
        pthread_mutex_destroy(&names->all[i].mutex);
    if (names->all)
        pthread_mutex_destroy(&names->mutex);
    free(names->all);
    names->all = NULL;
}

static void accuse(struct bench_names *names, const struct bench_name *name, const char *what,
                   uint64_t token, uint64_t other)
{
    atomic_fetch_add(&names->violations, 1);
    pthread_mutex_lock(&names->mutex);
    if (!names->first_violation[0])
        snprintf(names->first_violation, sizeof names->first_violation,
                 "%s: %s, tokens %" PRIu64 " and %" PRIu64, name->text, what, other, token);
    pthread_mutex_unlock(&names->mutex);
}

/* A hold that ran out is over for both sides: what is granted then is no violation. Whoever is among those inside cannot go away
 * meanwhile, since leaving takes the mutex. */
static bool is_held(const struct bench_inside *inside)
{
    return !inside->lock || hf_lock_left_ms(inside->lock) > 0;
}

static void check(struct bench_names *names, const struct bench_name *name,
                  const struct bench_inside *inside)
{
    for (const struct bench_inside *other = name->first; other; other = other->next)
        if (is_held(other) && is_held(inside))
            accuse(names, name, "TWO HOLDERS at once", inside->token, other->token);
    if (inside->token <= name->last_token && is_held(inside))
        accuse(names, name, "a token that did NOT GROW", inside->token, name->last_token);
}

int64_t bench_name_enter(struct bench_names *names, struct bench_name *name,
                         struct bench_inside *inside, int64_t began_ns, int64_t now_ns)
{
    int64_t freed_ns;

    pthread_mutex_lock(&name->mutex);
    check(names, name, inside);
    if (inside->token > name->last_token)
        name->last_token = inside->token;
    inside->next = name->first;
    name->first = inside;
    freed_ns = name->freed_ns;
    name->freed_ns = 0;
    pthread_mutex_unlock(&name->mutex);
    return freed_ns > 0 && began_ns < freed_ns ? now_ns - freed_ns : -1;
}

void bench_name_leave(struct bench_name *name, struct bench_inside *inside, int64_t now_ns)
{
    struct bench_inside **at = &name->first;

    pthread_mutex_lock(&name->mutex);
    while (*at != inside)
        at = &(*at)->next;
    *at = inside->next;
    name->freed_ns = now_ns;
    pthread_mutex_unlock(&name->mutex);
}

bool bench_names_accuse(struct bench_names *names, char *ret_text, size_t size)
{
    static const char said[] = "-";
    bool is_new;

    pthread_mutex_lock(&names->mutex);
    is_new = names->first_violation[0] && strcmp(names->first_violation, said) != 0;
    if (is_new) {
        snprintf(ret_text, size, "%s", names->first_violation);
        snprintf(names->first_violation, sizeof names->first_violation, said);
    }
    pthread_mutex_unlock(&names->mutex);
    return is_new;
}
