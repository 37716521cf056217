/* replicate.c: a leader's side of the log: who gets what, and what is committed. §3.5, §3.6, §6.2, §10.2 */
#include "raft/inside.h"

/* Entries from below the window are read from disk by the caller, who cuts the message where he likes. */
#define FROM_DISK_MAX 4096

/* ---- who is there ---------------------------------------------------------------------------- */

struct progress *progress_find(const struct raft *raft, uint64_t id)
{
    for (int i = 0; i < raft->progress_count; i++)
        if (progress_of(raft, i)->id == id)
            return progress_of(raft, i);
    return NULL;
}

static void progress_add(struct raft *raft, const struct raft_member *member)
{
    *progress_of(raft, raft->progress_count++) =
        (struct progress){.id = member->id,
                          .incarnation = member->incarnation,
                          .next = raft->last + 1,
                          .acked_us = raft->now_us,
                          .advanced_us = raft->now_us,
                          .state = PROGRESS_PROBE};
}

/* While it is probed, `next` is the best that is known: nothing has been acknowledged in this term, or what was under way is
 * lost. */
void replicate_probe(struct raft *raft, struct progress *progress)
{
    if (progress->state != PROGRESS_PROBE)
        progress->next = progress->match + 1;
    progress->state = PROGRESS_PROBE;
    progress->probing = false;
    progress->advanced_us = raft->now_us;
}

void replicate_begin(struct raft *raft, struct raft_output *output)
{
    uint64_t before = window_id(raft, raft->last).chain;
    const struct raft_member *members = members_of(raft, LATEST);

    if (window_full(raft)) { /* many leaders before have added one entry each, and committed none */
        become_follower(raft, raft->term, 0, output);
        return;
    }
    raft->progress_count = 0;
    for (uint32_t i = 0; i < config_of(raft, LATEST)->count; i++)
        if (members[i].id != raft->id)
            progress_add(raft, &members[i]);
    window_append(raft, raft->term, RAFT_FIRST_OF_TERM, 0,
                  raft_chain(before, raft->term, RAFT_FIRST_OF_TERM, 0, 0));
    raft->first_of_term = raft->last;
    output->index = raft->last;
    output->made_size = 0;
    output->made = (struct raft_entry){
        .term = raft->term, .chain = window_id(raft, raft->last).chain, .type = RAFT_FIRST_OF_TERM};
}

/* Whoever was removed is served for a while, so that it learns of that. */
void replicate_members(struct raft *raft)
{
    const struct raft_member *members = members_of(raft, LATEST);
    int kept = 0, leaving = 0;

    for (int i = 0; i < raft->progress_count; i++) {
        struct progress *progress = progress_of(raft, i);

        if (member_find(raft, LATEST, progress->id) < 0 && !progress->leaving_us)
            progress->leaving_us = raft->now_us + raft->limits.election_us;
        if (progress->leaving_us && ++leaving > LEAVING_MAX)
            continue;
        *progress_of(raft, kept++) = *progress;
    }
    raft->progress_count = kept;
    for (uint32_t i = 0; i < config_of(raft, LATEST)->count; i++) {
        struct progress *progress = progress_find(raft, members[i].id);

        if (progress && progress->leaving_us) { /* it comes back: as somebody else */
            *progress = *progress_of(raft, --raft->progress_count);
            progress = NULL;
        }
        if (!progress && members[i].id != raft->id)
            progress_add(raft, &members[i]);
    }
}

static void drop_who_left(struct raft *raft)
{
    for (int i = raft->progress_count - 1; i >= 0; i--) {
        const struct progress *progress = progress_of(raft, i);
        bool knows = progress->match >= config_of(raft, LATEST)->index &&
                     progress->commit_sent >= config_of(raft, LATEST)->index;

        if (progress->leaving_us && (knows || raft->now_us >= progress->leaving_us))
            *progress_of(raft, i) = *progress_of(raft, --raft->progress_count);
    }
}

static bool answers_lately(const struct raft *raft, const struct progress *progress)
{
    return progress && raft->now_us - progress->acked_us < raft->limits.election_us;
}

bool majority_answers(const struct raft *raft)
{
    const struct raft_member *members = members_of(raft, LATEST);
    int there = 0;

    for (uint32_t i = 0; i < config_of(raft, LATEST)->count; i++)
        there += members[i].votes && (members[i].id == raft->id ||
                                      answers_lately(raft, progress_find(raft, members[i].id)));
    return there >= majority(raft);
}

bool majority_would_answer(const struct raft *raft, uint64_t without, uint64_t with,
                           int64_t since_us)
{
    const struct raft_member *members = members_of(raft, LATEST);
    int voters = 0, there = 0;

    for (uint32_t i = 0; i < config_of(raft, LATEST)->count; i++) {
        const struct progress *progress = progress_find(raft, members[i].id);

        if (members[i].id == without || !(members[i].votes || members[i].id == with))
            continue;
        voters++;
        there += members[i].id == raft->id || (answers_lately(raft, progress) &&
                                               progress->answered && progress->acked_us > since_us);
    }
    return 2 * there > voters;
}

/* ---- commit ---------------------------------------------------------------------------------- */

void replicate_commit(struct raft *raft, struct raft_output *output)
{
    const struct raft_member *members = members_of(raft, LATEST);
    uint64_t best = 0;

    /* The highest index that a majority has: one of theirs, and there are few. */
    for (uint32_t i = 0; i < config_of(raft, LATEST)->count; i++) {
        uint64_t index = 0;
        int count = 0;

        for (int pass = 0; pass < 2; pass++)
            for (uint32_t j = pass ? 0 : i; j < (pass ? config_of(raft, LATEST)->count : i + 1);
                 j++) {
                const struct progress *progress = progress_find(raft, members[j].id);
                uint64_t has = members[j].id == raft->id ? raft->durable
                               : progress                ? progress->match
                                                         : 0;

                if (!members[j].votes && !SWITCHED(SWITCH_LEARNER_COMMITS))
                    continue;
                if (!pass)
                    index = has;
                else
                    count += has >= index;
            }
        if (count >= majority(raft) && index > best)
            best = index;
    }
    /* R8 */
    if (best > raft->commit &&
        (window_term(raft, best) == raft->term || SWITCHED(SWITCH_OLDER_TERM_BY_COUNTING))) {
        bool tells = (raft->commit < raft->first_of_term && best >= raft->first_of_term) ||
                     (raft->commit < config_of(raft, LATEST)->index &&
                      best >= config_of(raft, LATEST)->index);

        raft->commit_urgent = raft->commit_urgent || tells;
        commit_to(raft, best, output);
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

/* Where the logs may agree. §3.5: all entries of a term that does not fit are skipped at once. */
static uint64_t next_by_hint(const struct raft *raft, const struct raft_message *message)
{
    uint64_t index = message->index < raft->last ? message->index : raft->last;

    if (message->hint_term == 0)
        return message->hint_index;
    while (index > raft->base.index && window_term(raft, index) > message->hint_term)
        index--;
    if (index > raft->base.index && window_term(raft, index) == message->hint_term)
        return index + 1;
    return message->hint_index;
}

static void on_no(struct raft *raft, struct progress *progress, const struct raft_message *message)
{
    uint64_t next;

    if (progress->state == PROGRESS_SNAPSHOT || message->index <= progress->match ||
        message->index >= progress->next)
        return; /* of an earlier message */
    next = next_by_hint(raft, message);
    if (next > message->index)
        next = message->index;
    replicate_probe(raft, progress);
    progress->next = next > progress->match ? next : progress->match + 1;
}

static void on_yes(struct raft *raft, struct progress *progress, uint64_t index)
{
    if (index > progress->match) {
        progress->match = index;
        progress->advanced_us = raft->now_us;
        progress->probing = false;
        if (progress->state == PROGRESS_SNAPSHOT)
            replicate_probe(raft, progress);
    }
    if (progress->state == PROGRESS_PROBE) {
        progress->state = PROGRESS_REPLICATE;
        progress->next = progress->match + 1;
        progress->probing = false;
    }
    if (progress->next <= progress->match)
        progress->next = progress->match + 1;
}

void replicate_on_reply(struct raft *raft, const struct raft_message *message,
                        struct raft_output *output)
{
    struct progress *progress = progress_find(raft, message->from);

    if (!progress || (progress->incarnation != message->incarnation && /* R20 */
                      !SWITCHED(SWITCH_OLD_INCARNATION)))
        return;
    if (message->yes && message->index > raft->last) { /* R9 */
        raft_fatal(raft, output,
                   "a member has committed entries that this leader, its own majority's, has not");
        return;
    }
    if (message->round > progress->acked_us && message->round <= raft->now_us)
        progress->acked_us = message->round;
    progress->answered = true;
    if (!message->yes) {
        on_no(raft, progress, message);
        return;
    }
    on_yes(raft, progress, message->index);
    members_catch_up(raft, progress, output);
    replicate_commit(raft, output);
    if (raft->role == RAFT_LEADER)
        transfer_try(raft, output);
}

/* ---- sending --------------------------------------------------------------------------------- */

static struct raft_message *send_append(struct raft *raft, struct progress *progress,
                                        uint64_t before, struct raft_output *output)
{
    struct raft_message *message = output_message(raft, output, RAFT_APPEND, progress->id);

    message->id.index = before;
    if (window_has(raft, before))
        message->id = window_id(raft, before);
    message->commit = raft->commit;
    message->round = raft->now_us;
    message->acked = progress->match;
    message->acked_by = progress->incarnation;
    message->first = 1; /* none: last is 0 */
    progress->sent_us = raft->now_us;
    progress->commit_sent = raft->commit;
    return message;
}

/* Without entries: it says that we lead, and how far we are. What is below the window is not looked up for that: 0 always
 * fits. */
static void send_heartbeat(struct raft *raft, struct progress *progress, struct raft_output *output)
{
    uint64_t before = progress->next - 1;

    if (progress->state == PROGRESS_SNAPSHOT || !window_has(raft, before))
        before = 0;
    send_append(raft, progress, before, output);
}

/* The caller sends it a snapshot. Until it has that, it is to know who leads. */
void replicate_snapshot(struct raft *raft, struct progress *progress, struct raft_output *output)
{
    progress->state = PROGRESS_SNAPSHOT;
    progress->probing = false;
    output_message(raft, output, RAFT_SNAPSHOT, progress->id);
    send_heartbeat(raft, progress, output);
}

/* The last entry that fits into what may be in flight; one does, if nothing is. */
static uint64_t last_to_send(const struct raft *raft, const struct progress *progress)
{
    uint64_t acked = progress->match > raft->base.index ? progress->match : raft->base.index;
    uint64_t most = window_total(raft, acked) + raft->limits.in_flight_bytes;
    uint64_t low, high = raft->last;

    if (acked > raft->last)
        acked = raft->last;
    low = progress->next - 1;
    while (low < high) { /* totals grow */
        uint64_t middle = high - (high - low) / 2;

        if (window_total(raft, middle) <= most)
            low = middle;
        else
            high = middle - 1;
    }
    if (low < progress->next && progress->next == acked + 1)
        low = progress->next;
    return low;
}

/* What it has not got. False: nothing was sent. */
static bool send_entries(struct raft *raft, struct progress *progress, struct raft_output *output)
{
    struct raft_message *message;
    uint64_t last;

    if (progress->next > raft->last || progress->state == PROGRESS_SNAPSHOT || progress->probing)
        return false;
    if (progress->next == progress->match + 1)
        progress->advanced_us = raft->now_us; /* from now on there is something to wait for */
    if (!window_has(raft, progress->next - 1)) {
        last = progress->next + FROM_DISK_MAX < raft->last ? progress->next + FROM_DISK_MAX
                                                           : raft->last;
        progress->probing = true;
    } else {
        last = last_to_send(raft, progress);
        if (last < progress->next)
            return false;
        progress->probing = progress->state == PROGRESS_PROBE;
    }
    message = send_append(raft, progress, progress->next - 1, output);
    message->first = progress->next;
    message->last = last;
    if (!progress->probing)
        progress->next = last + 1;
    return true;
}

void replicate_send(struct raft *raft, struct raft_output *output)
{
    bool urgent = raft->commit_urgent;

    raft->commit_urgent = false;
    drop_who_left(raft);
    for (int i = 0; i < raft->progress_count; i++) {
        struct progress *progress = progress_of(raft, i);
        bool waits = progress->probing || progress->next > progress->match + 1;

        if (waits && progress->state != PROGRESS_SNAPSHOT &&
            raft->now_us - progress->advanced_us >= raft->limits.election_us)
            replicate_probe(raft, progress);
        if (!send_entries(raft, progress, output) &&
            (raft->now_us - progress->sent_us >= raft->limits.heartbeat_us ||
             (urgent && progress->commit_sent < raft->commit)))
            send_heartbeat(raft, progress, output);
    }
}

int64_t replicate_next_us(const struct raft *raft)
{
    int64_t next_us =
        raft->progress_count > 0 ? raft->now_us + raft->limits.heartbeat_us : NEVER_US;

    for (int i = 0; i < raft->progress_count; i++) {
        const struct progress *progress = progress_of(raft, i);

        if (progress->sent_us + raft->limits.heartbeat_us < next_us)
            next_us = progress->sent_us + raft->limits.heartbeat_us;
    }
    return next_us;
}
