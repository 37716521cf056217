/* schedule.c: all tuning constants, each with its reason, and the decisions that they are for: what is proposed when, and how much of
 * it at a time; when the table is told the time; what can wait; when a snapshot is taken, and what is kept beside it. */
#include "replica/inside.h"

const struct tuning tuning = {
    /* A leader that dies costs so much. Less, and a disk or a scheduler that pauses for a moment costs an election. */
    .election_ms = 500,
    /* Ten may get lost before anybody campaigns. */
    .heartbeat_ms = 50,
    /* Entries above the commit index. A few in flight are the rule; the rest is for leaders that come and go. */
    .window = 8192,
    /* To one follower, unacknowledged: what a link of 1 Gbit/s carries in 16 ms. */
    .in_flight_bytes = 2u << 20,
    /* An entry is copied by every node, and checked as a whole: larger ones make others wait. */
    .batch_commands = 16384,
    .batch_bytes = 1u << 20,
    /* So many clients that wait: from here on an entry costs more than what waiting for a fuller one does. */
    .many = 16,
    /* Entries in flight: of few clients each may have its own, so that nobody waits for two; many are served best in two
     * halves, one of which is on its way while the other is answered. */
    .depth_few = 4,
    .depth_many = 2,
    /* How long a batch waits for more if nothing is in flight. Clients that were answered together come back within that. */
    .gather_us = 300,
    /* While a deadline is open, entries with nothing but time: rarely enough to cost nothing, and others end with it. */
    .tick_min_ms = 10,
    /* A lease outlives its TTL by that at most, when a leader goes. */
    .tick_max_ms = 250,
    /* Entries that a follower leaves alone while its disk works: its leader waits for the disk, nobody for its table. */
    .apply_backlog = 16,
    /* And so much at a time, with an ear for the leader between. */
    .apply_bytes = 64u << 10,
    /* A snapshot costs as much as the table is large: with as much log between two, they are half of what is written. */
    .snapshot_bytes = UINT64_C(256) << 20,
    /* Enough for one when there is time for it: a restart reads less. */
    .snapshot_idle_bytes = UINT64_C(1) << 20,
    .snapshot_idle_us = 10000000,
    /* Small ones take longer to apply than their bytes say. */
    .snapshot_entries = 100000,
    /* Of the table in one round: a third of a millisecond. */
    .snapshot_slice = 256u << 10,
    /* Who is away for a second or two needs no snapshot. */
    .snapshot_trailing = 8192,
    /* A follower that is alive and slow needs the log rather than one snapshot after the other. */
    .log_times = 2,
    /* Followers that are a little behind are served from memory. */
    .memory_bytes = UINT64_C(16) << 20,
    /* A receiver that says nothing is gone, or has another leader. */
    .image_silence_us = 2000000,
    /* A piece was lost, or the receiver writes it to disk. */
    .image_again_us = 250000,
    .image_pieces = 2,
    /* A snapshot is received into memory, and so is the table made of it. More than any table within core.h's limits that
     * fits into a machine, and a bound to what a peer can make this node collect. */
    .image_max = UINT64_C(64) << 30,
    /* Until nobody knows any more what became of a transfer. */
    .transfer_timeouts = 4,
    /* A busy leader serves a majority first: the others share what an entry costs among several. */
    .late_entries = 4,
    .late_us = 2000,
    /* A majority of which one is dead or slow costs a single entry so much, and then it is another majority. */
    .late_patience_us = 1000,
};

#define COMMIT_SMOOTHING 8  /* one of so many parts of the average is new */
#define COMMIT_FIRST_US 500 /* until one is known */

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void schedule_limits(struct replica *replica)
{
    struct replica_options *options = &replica->options;

    if (!options->election_ms)
        options->election_ms = tuning.election_ms;
    if (!options->heartbeat_ms)
        options->heartbeat_ms = tuning.heartbeat_ms;
    if (!options->snapshot_bytes)
        options->snapshot_bytes = tuning.snapshot_bytes;
    if (!options->snapshot_trailing)
        options->snapshot_trailing = tuning.snapshot_trailing;
    if (!options->memory_bytes)
        options->memory_bytes = tuning.memory_bytes;
    if (!options->window)
        options->window = tuning.window;
    replica->limits = (struct raft_limits){.members = REPLICA_MEMBERS_MAX,
                                           .window = options->window,
                                           .in_flight_bytes = tuning.in_flight_bytes,
                                           .election_us = (int64_t)options->election_ms * 1000,
                                           .heartbeat_us = (int64_t)options->heartbeat_ms * 1000};
    replica->schedule.commit_us = COMMIT_FIRST_US;
}

/* ---- time [P3] -------------------------------------------------------------------------------- */

void schedule_elected(struct replica *replica)
{
    replica->schedule.counted_us = replica->now_us;
}

/* What is above the maximum is forgotten, or the entries to come would bring it, too fast for the leases that are given meanwhile.
 * What is below a millisecond is left for the next. */
uint32_t schedule_elapsed(struct replica *replica)
{
    struct schedule *schedule = &replica->schedule;
    int64_t elapsed_ms = (replica->now_us - schedule->counted_us) / 1000;

    if (elapsed_ms <= 0)
        return 0;
    if (elapsed_ms > CORE_ELAPSED_MAX_MS) {
        schedule->counted_us = replica->now_us;
        return CORE_ELAPSED_MAX_MS;
    }
    schedule->counted_us += elapsed_ms * 1000;
    return (uint32_t)elapsed_ms;
}

/* When the table wants to hear what time it is. What is committed and not applied brings some of it. */
static int64_t tick_us(const struct replica *replica)
{
    int64_t deadline_ms = core_next_deadline(replica->table);
    int64_t until_ms;

    if (deadline_ms < 0)
        return NEVER_US;
    until_ms = deadline_ms - core_now(replica->table) - replica->flights.elapsed_ms;
    if (until_ms < tuning.tick_min_ms) /* others will end with it, a little late */
        until_ms = until_ms > 0 ? tuning.tick_min_ms : 0;
    return replica->schedule.counted_us + min_i64(until_ms, tuning.tick_max_ms) * 1000;
}

/* ---- proposing -------------------------------------------------------------------------------- */

bool schedule_batch_full(const struct replica *replica)
{
    const struct core_packer *packer = &replica->batch.packer;

    return packer->count >= tuning.batch_commands || core_packed_size(packer) >= tuning.batch_bytes;
}

static uint32_t depth_for(uint32_t expected)
{
    if (expected >= tuning.many)
        return tuning.depth_many;
    return expected < tuning.depth_few ? expected : tuning.depth_few;
}

/* Nothing in flight: few clients never wait, of many a batch gathers. Something in flight: the next follows when it has its
 * share of what is expected, or its oldest command has waited for a quarter of a commit. */
static int64_t batch_us(const struct replica *replica)
{
    const struct schedule *schedule = &replica->schedule;
    uint32_t count = replica->batch.packer.count;
    uint32_t expected = schedule->expected > 0 ? schedule->expected : 1;
    uint32_t depth = depth_for(expected), flying = flights_uncommitted(replica);

    if (schedule_batch_full(replica) && flying < tuning.depth_few)
        return replica->now_us;
    if (flying >= depth)
        return NEVER_US;
    if ((uint64_t)count * depth >= expected || (flying == 0 && expected < tuning.many))
        return replica->now_us;
    if (flying == 0)
        return schedule->batch_us + min_i64(tuning.gather_us, schedule->commit_us / 2);
    return schedule->batch_us + schedule->commit_us / 4;
}

int64_t schedule_propose_us(const struct replica *replica)
{
    if (replica->leading == LEAD_ELECTED)
        return replica->now_us;
    if (replica->leading != LEAD_SERVING)
        return NEVER_US;
    if (replica->batch.packer.count > 0)
        return min_i64(batch_us(replica),
                       flights_uncommitted(replica) == 0 ? tick_us(replica) : NEVER_US);
    return flights_uncommitted(replica) == 0 ? tick_us(replica) : NEVER_US;
}

void schedule_committed(struct replica *replica, int64_t took_us)
{
    struct schedule *schedule = &replica->schedule;

    schedule->commit_us += (took_us - schedule->commit_us) / COMMIT_SMOOTHING;
}

/* ---- applying, forgetting --------------------------------------------------------------------- */

size_t schedule_apply(const struct replica *replica)
{
    uint64_t backlog = raft_commit(replica->raft) - replica->applied.index;

    if (replica->leading != LEAD_IDLE)
        return SIZE_MAX;
    if (replica->write_count > 0 && backlog <= tuning.apply_backlog)
        return 0;
    return tuning.apply_bytes;
}

bool schedule_snapshot(const struct replica *replica)
{
    const struct snapshots *snapshots = &replica->snapshots;

    if (replica->applied.index <= snapshots->stored.index)
        return false;
    if (snapshots->wanted || snapshots->log_entries > tuning.snapshot_entries ||
        snapshots->log_bytes >= max_u64(replica->options.snapshot_bytes, snapshots->last_size))
        return true;
    return snapshots->log_bytes > tuning.snapshot_idle_bytes &&
           replica->now_us - replica->schedule.command_us >= tuning.snapshot_idle_us;
}

uint64_t schedule_trim(const struct replica *replica)
{
    uint64_t index = replica->snapshots.stored.index;
    uint64_t trailing = replica->options.snapshot_trailing;
    uint64_t most =
        tuning.log_times * max_u64(replica->options.snapshot_bytes, replica->snapshots.last_size);

    index = index > trailing ? index - trailing : 0;
    if (replica->snapshots.kept_bytes > most)
        return index;
    for (int i = 0; i < replica->members.latest.count; i++) {
        struct raft_progress progress;

        if (raft_progress(replica->raft, replica->members.latest.at[i].id, &progress) &&
            replica->now_us - progress.acked_us < replica->limits.election_us &&
            progress.match < index)
            index = progress.match;
    }
    return index;
}

/* ---- a majority first ------------------------------------------------------------------------- */

/* Half of the other voters, rounded up, make a majority with the leader. They are counted from `prompt` on. Learners are always
 * late. */
bool schedule_is_late(const struct replica *replica, uint64_t id)
{
    const struct replica_config *members = &replica->members.latest;
    unsigned others = 0, place = 0;
    bool votes = false;

    if (replica->schedule.expected < tuning.many || replica->leading != LEAD_SERVING)
        return false;
    for (int i = 0; i < members->count; i++) {
        if (!members->at[i].votes || members->at[i].id == replica->options.id)
            continue;
        if (members->at[i].id == id) {
            place = others;
            votes = true;
        }
        others++;
    }
    return !votes ||
           (place + others - replica->schedule.prompt % others) % others >= (others + 1) / 2;
}

/* When an entry is overdue that those who are prompt do not commit. */
int64_t schedule_overdue_us(const struct replica *replica)
{
    const struct flight *flight = flight_front(replica);

    if (!flight || flight->index <= raft_commit(replica->raft) ||
        flight->index == replica->schedule.overdue)
        return NEVER_US;
    return flight->since_us + tuning.late_patience_us;
}

void schedule_overdue(struct replica *replica)
{
    if (schedule_overdue_us(replica) > replica->now_us)
        return;
    replica->schedule.overdue = flight_front(replica)->index;
    replica->schedule.prompt++;
    send_held(replica, true);
}
