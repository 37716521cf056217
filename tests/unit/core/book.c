/* book.c: see book.h. */
#include "book.h"

#include <stdarg.h>
#include <stdio.h>

/* An entry that is being looked at. */
struct reading {
    struct book *book;
    const struct model_command *commands;
    uint32_t count, current; /* the command that has not been answered yet */
    char *wrong;
};

__attribute__((format(printf, 2, 3))) static bool wrong(struct reading *reading, const char *format,
                                                        ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(reading->wrong, WRONG_MAX, format, arguments);
    va_end(arguments);
    return false;
}

static bool executes(const struct reading *reading, enum core_op op)
{
    return reading->current < reading->count && reading->commands[reading->current].base.op == op;
}

/* ---- leases ----------------------------------------------------------------------------------- */

bool book_is_kept(const struct book *book, int who)
{
    for (int name = 0; name < MODEL_NAMES; name++)
        if (book->claims[name][who].state == BOOK_WAITS && book->claims[name][who].kept)
            return true;
    return false;
}

static bool has_claims(const struct book *book, int who)
{
    for (int name = 0; name < MODEL_NAMES; name++)
        if (book->claims[name][who].state != BOOK_NOTHING)
            return true;
    return false;
}

static void prolong(struct book *book, int who, uint32_t ttl_ms)
{
    struct book_lease *lease = &book->leases[who];

    if (lease->ttl_ms < ttl_ms)
        lease->ttl_ms = ttl_ms;
    if (lease->until_ms < book->now_ms + ttl_ms)
        lease->until_ms = book->now_ms + ttl_ms;
}

/* While a connection keeps a place, the lease's time does not run: it begins when the last one does so no more. */
static void unkeep(struct book *book, int name, int who)
{
    struct book_claim *claim = &book->claims[name][who];

    if (!claim->kept)
        return;
    claim->kept = false;
    if (!book_is_kept(book, who))
        prolong(book, who, book->leases[who].ttl_ms);
}

/* Until when its holder may believe in it. */
static int64_t believed_until(const struct book *book, int who)
{
    const struct book_lease *lease = &book->leases[who];
    int64_t kept_until = book_is_kept(book, who) ? book->now_ms + lease->ttl_ms : 0;

    return lease->until_ms > kept_until ? lease->until_ms : kept_until;
}

static void claim_over(struct book *book, int name, int who)
{
    unkeep(book, name, who);
    book->claims[name][who] = (struct book_claim){.state = BOOK_NOTHING};
    if (!has_claims(book, who)) { /* the table forgets it, and begins anew if it comes again */
        book->leases[who].ttl_ms = 0;
        book->leases[who].until_ms = 0;
    }
}

/* ---- grants ----------------------------------------------------------------------------------- */

static bool conflict(int mode, int other)
{
    return mode != other || mode == HF_EXCLUSIVE;
}

/* [B1] */
static bool may_hold(struct reading *reading, int name, int who)
{
    const struct book *book = reading->book;
    const struct book_claim *claim = &book->claims[name][who];
    uint32_t held = 1;

    for (int other = 0; other < BOOK_LEASES; other++) {
        if (other == who || book->claims[name][other].state != BOOK_HOLDS)
            continue;
        if (conflict(claim->mode, book->claims[name][other].mode))
            return wrong(reading, "[B1] token %llu is granted while token %llu holds",
                         (unsigned long long)claim->number,
                         (unsigned long long)book->claims[name][other].number);
        held++;
    }
    for (int i = 0; i < BOOK_GHOSTS; i++) {
        const struct book_ghost *ghost = &book->ghosts[i];

        if (!ghost->used || ghost->name != name)
            continue;
        if (conflict(claim->mode, ghost->mode))
            return wrong(reading, "[B1] token %llu is granted %lld ms before it may be",
                         (unsigned long long)claim->number,
                         (long long)(ghost->until_ms - book->now_ms));
        held++;
    }
    if (claim->mode == HF_PERMIT && held > claim->permits)
        return wrong(reading, "[B1] %u of %u permits are held", held, claim->permits);
    return true;
}

/* [B4] */
static bool is_first(struct reading *reading, int name, int who)
{
    const struct book_claim *claims = reading->book->claims[name];

    for (int other = 0; other < BOOK_LEASES; other++)
        if (claims[other].state == BOOK_WAITS && other != who &&
            (claims[who].state != BOOK_WAITS || claims[other].number < claims[who].number))
            return wrong(reading, "[B4] %c is granted %c before %c, who waits longer",
                         COMPARE_LEASE_0 + who, COMPARE_NAME_0 + name, COMPARE_LEASE_0 + other);
    return true;
}

static void fill_in(struct book_claim *claim, const struct core_command *command)
{
    claim->mode = command->mode;
    claim->permits = command->permits;
    claim->delay_ms = (int64_t)command->delay_ms;
}

static bool granted(struct reading *reading, const struct model_event *event)
{
    struct book *book = reading->book;
    struct book_claim *claim = &book->claims[event->name][event->who];
    const struct model_command *command = &reading->commands[reading->current];

    if (event->number <= book->last_token)
        return wrong(reading, "[B2] token %llu comes after token %llu",
                     (unsigned long long)event->number, (unsigned long long)book->last_token);
    book->last_token = event->number;
    if (!is_first(reading, event->name, event->who))
        return false;
    if (claim->state == BOOK_NOTHING) {
        if (!executes(reading, CORE_ACQUIRE) || command->name != event->name ||
            command->who != event->who)
            return wrong(reading, "somebody who does not ask is granted a name");
        fill_in(claim, &command->base);
    } else if (claim->state == BOOK_HOLDS) {
        return wrong(reading, "[B3] another token for a name that %c holds",
                     COMPARE_LEASE_0 + event->who);
    } else if (believed_until(book, event->who) <= book->now_ms) {
        return wrong(reading, "[B5] granted to a lease whose time is over");
    }
    unkeep(book, event->name, event->who);
    claim->state = BOOK_HOLDS;
    claim->number = event->number;
    return may_hold(reading, event->name, event->who);
}

/* ---- ends ------------------------------------------------------------------------------------- */

static void withhold(struct book *book, const struct model_event *event, int64_t until_ms)
{
    for (int i = 0; until_ms > book->now_ms && i < BOOK_GHOSTS; i++) {
        if (!book->ghosts[i].used) {
            book->ghosts[i] =
                (struct book_ghost){.used = true,
                                    .name = event->name,
                                    .mode = book->claims[event->name][event->who].mode,
                                    .token = event->number,
                                    .until_ms = until_ms};
            return;
        }
    }
}

/* May a claim end like this, as far as commands and time are concerned? */
static bool may_end(struct reading *reading, const struct model_event *event)
{
    const struct book *book = reading->book;
    const struct model_command *command = &reading->commands[reading->current];
    bool its = reading->current < reading->count && command->who == event->who;

    switch (event->why) {
    case WHY_EXPIRED:
        if (believed_until(book, event->who) > book->now_ms)
            return wrong(reading, "[B5] the lease %c ends %lld ms early",
                         COMPARE_LEASE_0 + event->who,
                         (long long)(believed_until(book, event->who) - book->now_ms));
        return true;
    case WHY_WAIT_OVER:
        if (book->claims[event->name][event->who].wait_until_ms > book->now_ms)
            return wrong(reading, "[B5] a place ends before its WAIT does");
        return true;
    case WHY_RELEASED:
    case WHY_LEFT:
        its &= executes(reading, CORE_RELEASE) || executes(reading, CORE_LEAVE) ||
               executes(reading, CORE_ACQUIRE);
        return (its && command->name == event->name) || wrong(reading, "released by nobody");
    case WHY_ENDED:
        return (its && executes(reading, CORE_END)) || wrong(reading, "ended by nobody");
    case WHY_FINISHED:
        return executes(reading, CORE_FINISH) || wrong(reading, "finished by nobody");
    case WHY_BROKEN:
        return executes(reading, CORE_BREAK) || wrong(reading, "broken by nobody");
    default:
        return true;
    }
}

static bool ghost_over(struct reading *reading, const struct model_event *event)
{
    struct book *book = reading->book;
    bool now =
        executes(reading, CORE_BREAK) && reading->commands[reading->current].base.flags & CORE_NOW;

    for (int i = 0; i < BOOK_GHOSTS; i++) {
        struct book_ghost *ghost = &book->ghosts[i];

        if (!ghost->used || ghost->token != event->number)
            continue;
        if (!now && ghost->until_ms > book->now_ms)
            return wrong(reading, "[B1] the ghost of token %llu ends %lld ms early",
                         (unsigned long long)ghost->token,
                         (long long)(ghost->until_ms - book->now_ms));
        ghost->used = false;
    }
    return true;
}

static bool hold_over(struct reading *reading, const struct model_event *event)
{
    struct book *book = reading->book;
    const struct book_claim *claim;
    const struct core_command *command = &reading->commands[reading->current].base;
    int64_t until_ms, delay_ms;

    if (event->who == NOBODY)
        return ghost_over(reading, event);
    claim = &book->claims[event->name][event->who];
    if (claim->state != BOOK_HOLDS || claim->number != event->number)
        return wrong(reading, "a hold is over that there was not, token %llu",
                     (unsigned long long)event->number);
    if (!may_end(reading, event))
        return false;
    until_ms = believed_until(book, event->who);
    delay_ms = event->name >= MODEL_ONCE ? 0 : claim->delay_ms;
    if (event->why == WHY_EXPIRED || (event->why == WHY_BROKEN && !(command->flags & CORE_NOW)))
        withhold(book, event, until_ms + delay_ms);
    if (event->why == WHY_BROKEN && book->leases[event->who].ended_until_ms < until_ms)
        book->leases[event->who].ended_until_ms = until_ms;
    if (event->why == WHY_FINISHED)
        book->results[event->name] =
            (struct book_result){event->number, book->now_ms + (int64_t)command->keep_ms};
    claim_over(book, event->name, event->who);
    return true;
}

static bool place_over(struct reading *reading, const struct model_event *event)
{
    const struct book_claim *claim = &reading->book->claims[event->name][event->who];

    if (claim->state != BOOK_WAITS || claim->number != event->ticket)
        return wrong(reading, "a place is over that there was not, ticket %llu",
                     (unsigned long long)event->ticket);
    if (!may_end(reading, event))
        return false;
    claim_over(reading->book, event->name, event->who);
    return true;
}

/* ---- answers ---------------------------------------------------------------------------------- */

static bool queued(struct reading *reading, const struct model_event *event)
{
    struct book *book = reading->book;
    const struct model_command *command = &reading->commands[event->command];
    struct book_claim *claim = &book->claims[command->name][command->who];

    if (claim->state == BOOK_NOTHING) {
        if (event->number <= book->last_ticket)
            return wrong(reading, "[B4] ticket %llu comes after ticket %llu",
                         (unsigned long long)event->number, (unsigned long long)book->last_ticket);
        book->last_ticket = event->number;
        fill_in(claim, &command->base);
        claim->state = BOOK_WAITS;
        claim->number = event->number;
    } else if (claim->state != BOOK_WAITS || claim->number != event->number) {
        return wrong(reading, "[B4] who waits and asks again has another place");
    }
    prolong(book, command->who, command->base.ttl_ms);
    claim->wait_until_ms = command->base.wait_ms == CORE_FOREVER
                               ? INT64_MAX
                               : book->now_ms + (int64_t)command->base.wait_ms;
    if (command->base.flags & CORE_KEPT)
        claim->kept = true;
    else
        unkeep(book, command->name, command->who);
    return true;
}

static bool acquire_answered(struct reading *reading, const struct model_event *event)
{
    struct book *book = reading->book;
    const struct model_command *command = &reading->commands[event->command];
    const struct book_claim *claim = &book->claims[command->name][command->who];
    const struct book_result *result = &book->results[command->name];

    if (event->answer != ANSWER_DONE && event->answer != ANSWER_ENDED &&
        result->until_ms > book->now_ms)
        return wrong(reading, "[B7] the result of token %llu is not told",
                     (unsigned long long)result->token);
    if (event->answer == ANSWER_DONE && result->token != event->number)
        return wrong(reading, "[B7] the result of another token is told");
    if (event->answer != ANSWER_TOKEN && event->answer != ANSWER_QUEUED)
        return true;
    if (book->leases[command->who].ended_until_ms > book->now_ms)
        return wrong(reading, "[B6] a lease that was ended lives again");
    if (event->answer == ANSWER_QUEUED)
        return queued(reading, event);
    if (claim->state != BOOK_HOLDS || claim->number != event->number)
        return wrong(reading, "[B3] told token %llu, and has token %llu",
                     (unsigned long long)event->number, (unsigned long long)claim->number);
    prolong(book, command->who, command->base.ttl_ms);
    return true;
}

static bool renew_answered(struct reading *reading, const struct model_event *event)
{
    struct book *book = reading->book;
    struct book_lease *lease = &book->leases[event->who];
    uint32_t ttl_ms = reading->commands[event->command].base.ttl_ms;

    if (event->number == UINT64_MAX)
        return !has_claims(book, event->who) ||
               wrong(reading, "[B5] a lease that lives is said to be over");
    if (!has_claims(book, event->who))
        return wrong(reading, "[B5] a lease that has nothing is said to live");
    if (ttl_ms)
        lease->ttl_ms = ttl_ms;
    if (event->number < lease->ttl_ms)
        return wrong(reading, "[B5] renewed for less than its TTL");
    if (lease->until_ms < book->now_ms + (int64_t)event->number)
        lease->until_ms = book->now_ms + (int64_t)event->number;
    return true;
}

static bool end_answered(struct reading *reading, const struct model_event *event)
{
    struct book *book = reading->book;
    const struct model_command *command = &reading->commands[event->command];
    struct book_lease *lease = &book->leases[command->who];
    int64_t remembered_ms =
        command->base.ttl_ms ? (int64_t)command->base.ttl_ms : CORE_ENDED_DEFAULT_MS;

    if (has_claims(book, command->who))
        return wrong(reading, "[B6] a lease that was ended has something");
    if (lease->ended_until_ms < book->now_ms + remembered_ms)
        lease->ended_until_ms = book->now_ms + remembered_ms;
    return true;
}

static bool answered(struct reading *reading, const struct model_event *event)
{
    struct book *book = reading->book;

    reading->current = event->command + 1;
    switch (reading->commands[event->command].base.op) {
    case CORE_ACQUIRE:
        return acquire_answered(reading, event);
    case CORE_RENEW:
        return renew_answered(reading, event);
    case CORE_END:
        return end_answered(reading, event);
    case CORE_FLOOR:
    case CORE_IDENTITY:
        if (event->number < book->last_token)
            return wrong(reading, "[B2] the last token is less than it was");
        book->last_token = event->number;
        return true;
    default:
        return true;
    }
}

/* ---- entries ---------------------------------------------------------------------------------- */

static bool one_event(struct reading *reading, const struct model_event *event)
{
    const struct book_claim *claim;

    switch (event->kind) {
    case EFFECT_READ:
        reading->current = event->command + 1;
        return true;
    case EFFECT_ANSWER:
        return answered(reading, event);
    case EFFECT_CHANGED:
        return event->why == WHY_GRANTED ? granted(reading, event) : hold_over(reading, event);
    case EFFECT_GRANTED:
        claim = &reading->book->claims[event->name][event->who];
        return (claim->state == BOOK_HOLDS && claim->number == event->number) ||
               wrong(reading, "[B3] told a grant that there was not");
    case EFFECT_LEFT:
    case EFFECT_DONE:
        return place_over(reading, event);
    }
    return false;
}

/* What is over does not matter any more, and is not to make two states differ. */
static void forget(struct book *book)
{
    for (int i = 0; i < BOOK_GHOSTS; i++)
        if (book->ghosts[i].until_ms <= book->now_ms)
            book->ghosts[i] = (struct book_ghost){.used = false};
    for (int name = 0; name < MODEL_NAMES; name++)
        if (book->results[name].until_ms <= book->now_ms)
            book->results[name] = (struct book_result){0, 0};
    for (int who = 0; who < BOOK_LEASES; who++)
        if (book->leases[who].ended_until_ms <= book->now_ms)
            book->leases[who].ended_until_ms = 0;
}

static void time_passes(struct book *book, uint32_t elapsed_ms, bool new_term)
{
    book->now_ms += elapsed_ms;
    forget(book);
    for (int name = 0; new_term && name < MODEL_NAMES; name++)
        for (int who = 0; who < BOOK_LEASES; who++)
            unkeep(book, name, who);
}

/* [B5]: what is over is gone. Deadlines end before the commands of an entry, and no TTL is 0; but a WAIT may be. */
static bool nobody_is_late(struct reading *reading)
{
    const struct book *book = reading->book;

    for (int who = 0; who < BOOK_LEASES; who++) {
        if (has_claims(book, who) && believed_until(book, who) <= book->now_ms)
            return wrong(reading, "[B5] the lease %c outlives its time", COMPARE_LEASE_0 + who);
        for (int name = 0; name < MODEL_NAMES; name++)
            if (book->claims[name][who].state == BOOK_WAITS &&
                book->claims[name][who].wait_until_ms < book->now_ms)
                return wrong(reading, "[B5] a place outlives its WAIT");
    }
    return true;
}

bool book_entry(struct book *book, const struct model_command *commands, uint32_t count,
                uint32_t elapsed_ms, bool new_term, const struct events *events,
                char ret_wrong[WRONG_MAX])
{
    struct reading reading = {
        .book = book, .commands = commands, .count = count, .wrong = ret_wrong};

    time_passes(book, elapsed_ms, new_term);
    for (int i = 0; i < events->count; i++)
        if (!one_event(&reading, &events->event[i]))
            return false;
    forget(book);
    return nobody_is_late(&reading);
}
