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
    /* Expected commands: from here on a leader is busy, and serves a majority first. */
    .many = 8,
    /* So many commands wait for each other; of more, half: the next entry has the others. */
    .together = 6,
    /* Commands in a batch: what an entry costs is shared by enough. */
    .enough = 128,
    /* How long a batch waits for clients that have just been answered: they come back within that. An entry costs each node as much as
     * 30 commands do, and disks write one after the other: two clients that share an entry are both faster than two that take turns. */
    .gather_us = 300,
    /* Entries in flight if the others are far away: a commit takes so long, and so many times as long as this node's disk takes. Then nobody
     * waits for more than a part of the way. */
    .depth = 4,
    .far_us = 2000,
    .far_times = 4,
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
    .snapshot_silence_us = 2000000,
    /* A piece was lost, or the receiver writes it to disk. */
    .snapshot_again_us = 250000,
    .snapshot_pieces = 2,
    /* A snapshot is received into memory, and so is the table made of it. More than any table within core.h's limits that
     * fits into a machine, and a bound to what a peer can make this node collect. */
    .snapshot_max = UINT64_C(64) << 30,
    /* Until nobody knows any more what became of a transfer. */
    .transfer_timeouts = 4,
    /* Ten heartbeats: whoever has answered none of them would not be there for the change either. */
    .confirm_timeouts = 1,
    /* A busy leader serves a majority first: the others share what an entry costs among several. */
    .deferred_entries = 4,
    .deferred_us = 2000,
    /* A majority of which one is dead or slow costs a single entry so much, and then it is another majority. */
    .quorum_patience_us = 1000,
    /* Often enough for a leader who believes it for an election timeout; and only while there is something to say. */
    .version_say_us = 100000,
    /* A few hundred bytes for each member. */
    .digest_us = 1000000,
};

#define SMOOTHING 8         /* one of so many parts of an average is new */
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
    if (!options->in_flight_bytes)
        options->in_flight_bytes = tuning.in_flight_bytes;
    replica->limits = (struct raft_limits){.members = REPLICA_MEMBERS_MAX,
                                           .window = options->window,
                                           .in_flight_bytes = options->in_flight_bytes,
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
    until_ms = deadline_ms - core_now(replica->table) - replica->in_flight.elapsed_ms;
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

static uint32_t depth_of(const struct schedule *schedule)
{
    bool is_far = schedule->commit_us > tuning.far_us &&
                  schedule->commit_us > tuning.far_times * schedule->write_us;

    return is_far ? tuning.depth : 1;
}

/* Of few clients all, so that they stay together. Of many half: while these are in flight, the others are answered, and come back. */
static bool is_enough(uint64_t count, uint64_t expected)
{
    return count >= tuning.enough ||
           (2 * count >= expected && (count >= expected || count >= tuning.together));
}

/* Nothing in flight: the batch waits for those who have just been answered, or are about to be, and for nobody else. Something in flight:
 * the next follows when it has its share of what is expected, or its oldest command has waited for a quarter of a commit. */
static int64_t batch_us(const struct replica *replica)
{
    const struct schedule *schedule = &replica->schedule;
    uint64_t count = replica->batch.packer.count;
    uint32_t depth = depth_of(schedule), in_flight = in_flight_uncommitted(replica);
    bool answering = schedule->answering || replica->in_flight.count > in_flight;

    if (schedule_batch_full(replica) && in_flight < tuning.depth)
        return replica->now_us;
    if (in_flight >= depth)
        return NEVER_US;
    if (is_enough(count * depth, schedule->expected))
        return replica->now_us;
    if (in_flight > 0)
        return schedule->batch_us + schedule->commit_us / 4;
    return (answering ? replica->now_us : schedule->answered_us) +
           min_i64(tuning.gather_us, schedule->commit_us / 2);
}

bool replica_is_full(const struct replica *replica)
{
    return replica->leading == LEAD_SERVING &&
           (in_flight_uncommitted(replica) >= depth_of(&replica->schedule) ||
            !raft_may_propose(replica->raft));
}

bool replica_has_enough(const struct replica *replica)
{
    uint64_t count = replica->batch.packer.count;

    return replica->leading == LEAD_SERVING && in_flight_uncommitted(replica) == 0 &&
           count >= tuning.enough && 2 * count >= replica->schedule.expected;
}

int64_t schedule_propose_us(const struct replica *replica)
{
    if (replica->leading == LEAD_ELECTED)
        return replica->now_us;
    if (replica->leading != LEAD_SERVING)
        return NEVER_US;
    if (replica->batch.packer.count > 0)
        return min_i64(batch_us(replica),
                       in_flight_uncommitted(replica) == 0 ? tick_us(replica) : NEVER_US);
    return in_flight_uncommitted(replica) == 0 ? tick_us(replica) : NEVER_US;
}

void schedule_committed(struct replica *replica, int64_t took_us)
{
    struct schedule *schedule = &replica->schedule;

    schedule->commit_us += (took_us - schedule->commit_us) / SMOOTHING;
}

void schedule_written(struct replica *replica, int64_t took_us)
{
    struct schedule *schedule = &replica->schedule;

    schedule->write_us += (took_us - schedule->write_us) / SMOOTHING;
}

/* A pump begins. What the last one answered has left since. */
void schedule_begin(struct replica *replica, uint32_t expected)
{
    struct schedule *schedule = &replica->schedule;

    schedule->expected = expected;
    if (schedule->answering)
        schedule->answered_us = replica->now_us;
    schedule->answering = false;
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

    /* Entries may be large: no more than there was between two snapshots. */
    index = max_u64(index > trailing ? index - trailing : 0, replica->snapshots.before);
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

/* Half of the other voters, rounded up, make a majority with the leader. They are counted from `quorum_first` on. Learners are always
 * deferred. */
bool schedule_defers(const struct replica *replica, uint64_t id)
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
           (place + others - replica->schedule.quorum_first % others) % others >= (others + 1) / 2;
}

/* When an entry is overdue that those who get it first do not commit. */
int64_t schedule_overdue_us(const struct replica *replica)
{
    const struct proposal *proposal = in_flight_front(replica);

    if (!proposal || proposal->index <= raft_commit(replica->raft) ||
        proposal->index == replica->schedule.overdue)
        return NEVER_US;
    return proposal->since_us + tuning.quorum_patience_us;
}

void schedule_overdue(struct replica *replica)
{
    if (schedule_overdue_us(replica) > replica->now_us)
        return;
    replica->schedule.overdue = in_flight_front(replica)->index;
    replica->schedule.quorum_first++;
    send_held(replica, true);
}
