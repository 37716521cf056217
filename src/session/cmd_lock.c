/* cmd_lock.c: the commands that change who holds what, and ONCE. */
#include "session/inside.h"

enum { HAD_TOKEN = 1, HAD_TTL = 2, HAD_NOW = 4, HAD_KEEP = 8 };

static struct words_left words_from(struct session *session, const struct resp_node *value,
                                    uint32_t at)
{
    return (struct words_left){.session = session, .value = value, .at = at};
}

/* ---- ACQUIRE and RELEASE, of locks and of once-records ------------------------------------------- */

static enum verdict acquire(struct session *session, const struct resp_node *value, uint32_t at,
                            bool once)
{
    struct words_left left = words_from(session, value, at);
    struct submission submission = {.value = value, .from = at};

    if (!parse_acquire(&left, once, &submission.command, &submission.push))
        return VERDICT_REFUSED;
    /* The answer may be a result, which is long: it is made when those before it are out. */
    if (once && session->under_way > 0)
        return VERDICT_LATER;
    /* Name and lease are wanted again if its connection breaks while it waits. */
    submission.waits = submission.command.flags & CORE_KEPT;
    submission.words = submission.waits ? 2 : 0;
    return submit(session, &submission);
}

static enum verdict release(struct session *session, const struct resp_node *value, uint32_t at,
                            bool once)
{
    struct words_left left = words_from(session, value, at + 2);
    struct submission submission = {.value = value,
                                    .command = {.op = CORE_RELEASE, .flags = once ? CORE_ONCE : 0}};
    struct core_command *command = &submission.command;

    if (!parse_name(session, word_at(value, at), &command->name) ||
        !parse_lease(session, word_at(value, at + 1), &command->lease))
        return VERDICT_REFUSED;
    if (option_is(&left, "TOKEN", HAD_TOKEN) &&
        !option_number(&left, "TOKEN", 1, HF_TOKEN_MAX, &command->token))
        return VERDICT_REFUSED;
    if (left.at < value->count && !option_unknown(&left))
        return VERDICT_REFUSED;
    return submit(session, &submission);
}

enum verdict command_acquire(struct session *session, const struct resp_node *value)
{
    return acquire(session, value, 1, false);
}

enum verdict command_release(struct session *session, const struct resp_node *value)
{
    return release(session, value, 1, false);
}

/* ---- leases -------------------------------------------------------------------------------------- */

enum verdict command_renew(struct session *session, const struct resp_node *value)
{
    struct submission submission = {.value = value, .command = {.op = CORE_RENEW}};
    struct core_text leases[CORE_RENEW_MAX];
    uint32_t count = value->count - 1;
    uint64_t ttl_ms = 0;

    if (count >= 3 && word_is(word_at(value, count - 1), "TTL")) {
        if (!parse_number(session, word_at(value, count), "TTL", HF_TTL_MIN_MS, HF_TTL_MAX_MS,
                          &ttl_ms))
            return VERDICT_REFUSED;
        count -= 2;
    }
    if (count > CORE_RENEW_MAX)
        return refuse(session, "LIMIT at most %u leases in one RENEW", CORE_RENEW_MAX);
    for (uint32_t i = 0; i < count; i++)
        if (!parse_lease(session, word_at(value, 1 + i), &leases[i]))
            return VERDICT_REFUSED;
    if (ttl_ms)
        submission.command.ttl_ms = (uint32_t)span_in_full(ttl_ms);
    submission.command.leases = leases;
    submission.command.lease_count = count;
    return submit(session, &submission);
}

enum verdict command_end(struct session *session, const struct resp_node *value)
{
    struct words_left left = words_from(session, value, 2);
    struct submission submission = {.value = value, .command = {.op = CORE_END}};
    uint64_t ttl_ms = 0;

    if (!parse_lease(session, word_at(value, 1), &submission.command.lease))
        return VERDICT_REFUSED;
    if (option_is(&left, "TTL", HAD_TTL) &&
        !option_number(&left, "TTL", HF_TTL_MIN_MS, HF_TTL_MAX_MS, &ttl_ms))
        return VERDICT_REFUSED;
    if (left.at < value->count && !option_unknown(&left))
        return VERDICT_REFUSED;
    if (ttl_ms)
        submission.command.ttl_ms = (uint32_t)span_in_full(ttl_ms);
    return submit(session, &submission);
}

/* ---- the operator's ------------------------------------------------------------------------------ */

enum verdict command_break(struct session *session, const struct resp_node *value)
{
    struct words_left left = words_from(session, value, 2);
    struct submission submission = {.value = value, .command = {.op = CORE_BREAK}};

    if (!parse_name(session, word_at(value, 1), &submission.command.name))
        return VERDICT_REFUSED;
    if (option_is(&left, "NOW", HAD_NOW))
        submission.command.flags |= CORE_NOW;
    if (left.at < value->count && !option_unknown(&left))
        return VERDICT_REFUSED;
    return submit(session, &submission);
}

enum verdict command_floor(struct session *session, const struct resp_node *value)
{
    struct submission submission = {.value = value, .command = {.op = CORE_FLOOR}};

    if (!parse_number(session, word_at(value, 1), "a token", 0, HF_TOKEN_MAX - 1,
                      &submission.command.token))
        return VERDICT_REFUSED;
    return submit(session, &submission);
}

/* ---- ONCE ---------------------------------------------------------------------------------------- */

/* ONCE FINISH key lease TOKEN token KEEP ms result */
enum verdict command_once_finish(struct session *session, const struct resp_node *value)
{
    struct words_left left = words_from(session, value, 4);
    struct submission submission = {.value = value,
                                    .command = {.op = CORE_FINISH, .flags = CORE_ONCE}};
    struct core_command *command = &submission.command;
    const struct resp_node *result = word_at(value, 8);

    if (!parse_name(session, word_at(value, 2), &command->name) ||
        !parse_lease(session, word_at(value, 3), &command->lease))
        return VERDICT_REFUSED;
    if (!option_is(&left, "TOKEN", HAD_TOKEN))
        return option_unknown(&left), VERDICT_REFUSED;
    if (!option_number(&left, "TOKEN", 1, HF_TOKEN_MAX, &command->token))
        return VERDICT_REFUSED;
    if (!option_is(&left, "KEEP", HAD_KEEP))
        return option_unknown(&left), VERDICT_REFUSED;
    if (!option_number(&left, "KEEP", 1, HF_DURATION_MAX_MS, &command->keep_ms))
        return VERDICT_REFUSED;
    if (result->size > CORE_RESULT_MAX)
        return refuse(session, "LIMIT a result has at most %u bytes", CORE_RESULT_MAX);
    command->result = word_text(result);
    command->keep_ms = span_in_full(command->keep_ms);
    return submit(session, &submission);
}

enum verdict command_once_read(struct session *session, const struct resp_node *value)
{
    struct submission submission = {.value = value,
                                    .command = {.op = CORE_READ, .flags = CORE_ONCE},
                                    .from = 2,
                                    .words = 1,
                                    .read = read_once};
    struct core_text key;

    if (!parse_name(session, word_at(value, 2), &key))
        return VERDICT_REFUSED;
    if (session->under_way > 0)
        return VERDICT_LATER;
    return submit(session, &submission);
}

enum verdict command_once_claim(struct session *session, const struct resp_node *value)
{
    return acquire(session, value, 2, true);
}

enum verdict command_once_release(struct session *session, const struct resp_node *value)
{
    return release(session, value, 2, true);
}
