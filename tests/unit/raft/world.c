#include "world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ELECTION_US 500000
#define HEARTBEAT_US 50000
#define HEAL_ROUNDS 4000
#define POOL 65536

/* ---- chance ---------------------------------------------------------------------------------- */

static uint64_t draw(struct world *world, uint64_t below)
{
    world->chance += 0x9e3779b97f4a7c15u;
    uint64_t value = world->chance;

    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
    value = (value ^ value >> 27) * 0x94d049bb133111ebu;
    return (value ^ value >> 31) % below;
}

static bool happens(struct world *world, int of_thousand)
{
    return (int)draw(world, 1000) < of_thousand;
}

static void wrong(struct world *world, const char *format, ...)
{
    va_list args;

    if (world->wrong[0])
        return;
    va_start(args, format);
    vsnprintf(world->wrong, sizeof world->wrong, format, args);
    va_end(args);
}

static struct world_node *node_of(struct world *world, uint64_t id)
{
    return id >= 1 && id <= WORLD_NODES ? &world->nodes[id - 1] : NULL;
}

/* ---- entries --------------------------------------------------------------------------------- */

static const struct world_entry *keep(struct world *world, const struct raft_entry *entry,
                                      const void *bytes, size_t size)
{
    struct world_entry *kept = &world->pool[world->pool_count];

    if (world->pool_count == POOL - 1 || size > sizeof kept->bytes) {
        wrong(world, "the world is too small");
        return kept;
    }
    world->pool_count++;
    kept->entry = *entry;
    kept->entry.bytes = kept->bytes;
    memcpy(kept->bytes, bytes, size);
    return kept;
}

/* The members as of an index of a node's log. */
static void members_at(const struct world_node *node, uint64_t index,
                       struct raft_members *ret_members)
{
    *ret_members = node->disk.members;
    for (uint64_t i = node->disk.snapshot.index + 1; i <= index; i++)
        if (node->log[i]->entry.type == RAFT_CONFIG) {
            raft_members_read(node->log[i]->bytes, node->log[i]->entry.size, ret_members);
            ret_members->index = i;
        }
}

/* ---- ghosts ---------------------------------------------------------------------------------- */

static void ghost_vote(struct world *world, const struct world_node *node, uint64_t term,
                       uint64_t vote)
{
    uint64_t *voted = &world->votes[node->id - 1][term % WORLD_TERMS];

    if (vote == 0)
        return;
    if (*voted != 0 && *voted != vote)
        wrong(world, "node %d votes for %d and %d in term %d", (int)node->id, (int)*voted,
              (int)vote, (int)term);
    *voted = vote;
}

static void ghost_leader(struct world *world, const struct world_node *node)
{
    uint64_t *leader = &world->leaders[raft_term(node->raft) % WORLD_TERMS];

    if (*leader != 0 && *leader != node->id)
        wrong(world, "nodes %d and %d lead in term %d", (int)*leader, (int)node->id,
              (int)raft_term(node->raft));
    if (*leader == 0)
        world->elections++;
    *leader = node->id;
}

static void ghost_commit(struct world *world, struct world_node *node, uint64_t commit)
{
    if (commit < node->commit)
        wrong(world, "node %d: the commit index goes back from %d to %d", (int)node->id,
              (int)node->commit, (int)commit);
    for (uint64_t i = node->commit + 1; i <= commit && !world->wrong[0]; i++) {
        const struct world_entry *entry = i > node->disk.snapshot.index ? node->log[i] : NULL;

        if (!entry)
            continue; /* in a snapshot, of what somebody had committed */
        if (world->committed[i] && world->committed[i]->entry.chain != entry->entry.chain)
            wrong(world, "node %d commits another entry at %d, of term %d and not %d",
                  (int)node->id, (int)i, (int)entry->entry.term,
                  (int)world->committed[i]->entry.term);
        if (!world->committed[i])
            world->commands += entry->entry.type == RAFT_COMMAND;
        world->committed[i] = entry;
        if (i > world->committed_last)
            world->committed_last = i;
    }
    node->commit = commit;
}

/* ---- what a node puts out -------------------------------------------------------------------- */

static int feed(struct world *world, struct world_node *node, struct raft_event *event);

static void post(struct world *world, const struct world_message *message)
{
    if (world->message_count < WORLD_MESSAGES)
        world->messages[world->message_count++] = *message;
}

static void send_snapshot(struct world *world, struct world_node *node, uint64_t to)
{
    struct world_message out = {.snapshot = true,
                                .message = {.type = RAFT_SNAPSHOT,
                                            .from = node->id,
                                            .to = to,
                                            .term = raft_term(node->raft),
                                            .id = node->disk.snapshot},
                                .members = node->disk.members};
    struct raft_event sent = {.type = RAFT_ON_SNAPSHOT_SENT, .member.id = to};

    post(world, &out);
    feed(world, node, &sent);
}

static void send_message(struct world *world, struct world_node *node,
                         const struct raft_message *message)
{
    struct world_message out = {.message = *message};
    uint64_t floor = node->disk.snapshot.index;

    if (message->type == RAFT_SNAPSHOT) {
        send_snapshot(world, node, message->to);
        return;
    }
    if (message->type == RAFT_APPEND && message->id.index > 0 && message->id.term == 0) {
        if (message->id.index < floor) {
            struct raft_event gone = {.type = RAFT_ON_GONE, .member.id = message->to};

            feed(world, node, &gone);
            return;
        }
        out.message.id.term = message->id.index == floor ? node->disk.snapshot.term
                                                         : node->log[message->id.index]->entry.term;
        out.message.id.chain = message->id.index == floor
                                   ? node->disk.snapshot.chain
                                   : node->log[message->id.index]->entry.chain;
    }
    if (message->type == RAFT_APPEND && message->first <= message->last) {
        if (message->first <= floor) {
            struct raft_event gone = {.type = RAFT_ON_GONE, .member.id = message->to};

            feed(world, node, &gone);
            return;
        }
        for (uint64_t i = message->first; i <= message->last && out.count < WORLD_ENTRIES; i++)
            out.entries[out.count++] = node->log[i];
    }
    post(world, &out);
}

static void carry_out(struct world *world, struct world_node *node, const struct raft_event *event,
                      const struct raft_output *output)
{
    if (output->fatal)
        wrong(world, "node %d: %s", (int)node->id, output->fatal);
    if (output->persist) {
        ghost_vote(world, node, output->term, output->vote);
        node->disk.term = output->term;
        node->disk.vote = output->vote;
    }
    if (output->made.type)
        node->log[output->index] =
            keep(world, &output->made, output->made_bytes, output->made_size);
    for (uint64_t i = output->taken;
         output->taken && event->message.entries && i <= raft_last(node->raft); i++)
        node->log[i] =
            (const struct world_entry *)event->message.entries[i - event->message.id.index - 1]
                .bytes;
    if (raft_role(node->raft) == RAFT_LEADER)
        ghost_leader(world, node);
    if (output->append) {
        struct world_write *write = &node->writes[node->write_count++];

        if (node->write_count == WORLD_WRITES ||
            output->append_last - output->append_first >= WORLD_ENTRIES) {
            wrong(world, "the world is too small for these writes");
            node->write_count--;
            return;
        }
        *write = (struct world_write){.first = output->append_first,
                                      .last = output->append_last,
                                      .commit = output->commit,
                                      .epoch = output->append_epoch};
        for (uint64_t i = write->first; i <= write->last; i++)
            write->entries[i - write->first] = node->log[i];
    }
    if (output->committed)
        ghost_commit(world, node, output->commit);
    if (output->caught_up) {
        struct raft_event promote = {
            .type = RAFT_ON_CHANGE, .change = RAFT_PROMOTE, .member.id = output->caught_up};

        feed(world, node, &promote);
    }
    for (int i = 0; i < output->message_count && !world->wrong[0]; i++)
        send_message(world, node, &output->messages[i]);
}

/* Returns the result. */
static int feed(struct world *world, struct world_node *node, struct raft_event *event)
{
    struct raft_output *output = malloc(sizeof *output);
    const char *broken;
    int result;

    memset(output, 0, sizeof *output);
    event->now_us = world->now_us + node->skew_us;
    raft_step(node->raft, event, output);
    broken = raft_check(node->raft);
    if (broken && !output->fatal)
        wrong(world, "node %d: %s", (int)node->id, broken);
    carry_out(world, node, event, output);
    result = output->result;
    free(output);
    return result;
}

static void flush(struct world *world, struct world_node *node)
{
    struct raft_event event = {.type = RAFT_ON_FLUSH};

    feed(world, node, &event);
}

/* ---- disks ----------------------------------------------------------------------------------- */

static void write_some(struct world_disk *disk, const struct world_write *write, uint64_t last)
{
    for (uint64_t i = write->first; i <= last; i++)
        disk->log[i] = write->entries[i - write->first];
    disk->last = last;
    if (last >= write->first && write->commit > disk->commit)
        disk->commit = write->commit;
}

static void finish_write(struct world *world, struct world_node *node)
{
    struct world_write write = node->writes[0];
    struct raft_event event = {
        .type = RAFT_ON_PERSISTED, .epoch = write.epoch, .index = write.last};

    memmove(node->writes, node->writes + 1, (size_t)--node->write_count * sizeof *node->writes);
    write_some(&node->disk, &write, write.last);
    feed(world, node, &event);
}

static void start(struct world *world, struct world_node *node)
{
    struct world_disk *disk = &node->disk;
    struct raft_boot boot = {.id = node->id,
                             .incarnation = disk->incarnation,
                             .term = disk->term,
                             .vote = disk->vote,
                             .snapshot = disk->snapshot,
                             .members = disk->members.count ? &disk->members : NULL,
                             .commit = disk->snapshot.index,
                             .seed = draw(world, UINT64_MAX) | 1,
                             .now_us = world->now_us + node->skew_us};

    if (disk->commit > boot.commit)
        boot.commit = disk->commit < disk->last ? disk->commit : disk->last;
    raft_init(node->raft, &world->limits, &boot);
    for (uint64_t i = disk->snapshot.index + 1; i <= disk->last; i++) {
        node->log[i] = disk->log[i];
        if (!raft_recover(node->raft, &disk->log[i]->entry))
            wrong(world, "node %d does not recover entry %d", (int)node->id, (int)i);
    }
    node->write_count = 0;
    node->commit = 0;
    ghost_commit(world, node, raft_commit(node->raft));
    node->up = true;
    node->paused = false;
}

/* What was given to the disk may be there, in its order, the last of it in part. */
static void crash(struct world *world, struct world_node *node)
{
    int kept = (int)draw(world, (uint64_t)node->write_count + 1);

    for (int i = 0; i < kept; i++)
        write_some(&node->disk, &node->writes[i], node->writes[i].last);
    if (kept < node->write_count) {
        const struct world_write *write = &node->writes[kept];

        write_some(&node->disk, write,
                   write->first - 1 + draw(world, write->last - write->first + 2));
    }
    if (node->disk.last < node->disk.snapshot.index)
        node->disk.last = node->disk.snapshot.index;
    node->up = false;
    world->crashes++;
    /* Its directory is lost, and it comes back with an empty one: another node, under the same number. Once, where a
     * majority can do without it. */
    if (happens(world, world->wipe)) {
        memset(&node->disk, 0, sizeof node->disk);
        node->disk.incarnation = ++world->next_incarnation;
        memset(world->votes[node->id - 1], 0, sizeof world->votes[node->id - 1]);
        world->wipe = 0;
    }
}

static void take_snapshot(struct world_node *node)
{
    uint64_t index = node->commit;
    struct raft_members members;

    if (index <= node->disk.snapshot.index)
        return;
    members_at(node, index, &members);
    node->disk.snapshot =
        (struct raft_id){index, node->log[index]->entry.term, node->log[index]->entry.chain};
    node->disk.members = members;
    /* It may be durable before the entries in it are. */
    if (node->disk.last < index)
        node->disk.last = index;
}

static void install(struct world *world, struct world_node *node,
                    const struct world_message *message)
{
    const struct raft_id *id = &message->message.id;
    struct raft_event event = {.type = RAFT_ON_INSTALLED, .id = *id, .members = &message->members};
    struct raft_event comes = {.type = RAFT_ON_MESSAGE, .message = message->message};
    bool holds;

    if (feed(world, node, &comes) != RAFT_OK)
        return;
    if (id->index <= node->commit) {
        feed(world, node, &event);
        return;
    }
    holds = id->index <= raft_last(node->raft) && id->index > node->disk.snapshot.index &&
            node->log[id->index] && node->log[id->index]->entry.chain == id->chain;
    node->disk.snapshot = *id;
    node->disk.members = message->members;
    if (!holds) {
        node->disk.last = id->index;
        node->write_count = 0;
    } else if (node->disk.last < id->index) {
        node->disk.last = id->index;
    }
    world->installs++;
    feed(world, node, &event);
}

/* ---- what happens ---------------------------------------------------------------------------- */

static void deliver(struct world *world, int at)
{
    struct world_message in = world->messages[at];
    struct world_node *node = node_of(world, in.message.to);
    struct raft_entry entries[WORLD_ENTRIES];
    struct raft_event event = {.type = RAFT_ON_MESSAGE, .message = in.message};

    if (!happens(world, world->duplicate))
        world->messages[at] = world->messages[--world->message_count];
    if (!node || !node->used || !node->up || node->paused ||
        world->cuts[in.message.from - 1][in.message.to - 1] || happens(world, world->drop))
        return;
    if (in.snapshot) {
        install(world, node, &in);
        return;
    }
    for (uint32_t i = 0; i < in.count; i++)
        entries[i] = in.entries[i]->entry;
    event.message.entries = entries;
    event.message.count = in.count;
    feed(world, node, &event);
}

static struct world_node *some_node(struct world *world)
{
    return &world->nodes[draw(world, WORLD_NODES)];
}

static void propose(struct world *world, struct world_node *node)
{
    uint32_t number = (uint32_t)++world->next_command;
    struct raft_event event = {.type = RAFT_ON_PROPOSE, .size = 8, .sum = number};
    struct raft_output *output = calloc(1, sizeof *output);

    event.now_us = world->now_us + node->skew_us;
    raft_step(node->raft, &event, output);
    if (output->result == RAFT_OK) {
        const struct world_entry *before =
            output->index - 1 > node->disk.snapshot.index ? node->log[output->index - 1] : NULL;
        uint64_t chain = before ? before->entry.chain : node->disk.snapshot.chain;
        struct raft_entry entry = {
            .term = raft_term(node->raft), .size = 8, .sum = number, .type = RAFT_COMMAND};

        entry.chain = raft_chain(chain, entry.term, entry.type, entry.size, entry.sum);
        if (output->index >= WORLD_LOG - 2)
            wrong(world, "the world is too small for this log");
        else
            node->log[output->index] = keep(world, &entry, "", 0);
    }
    free(output);
}

static void begin_node(struct world *world, struct world_node *node)
{
    node->used = true;
    memset(&node->disk, 0, sizeof node->disk);
    node->disk.incarnation = ++world->next_incarnation;
    start(world, node);
}

static void change_members(struct world *world, struct world_node *leader)
{
    struct raft_event event = {.type = RAFT_ON_CHANGE};
    struct world_node *node = some_node(world);
    struct raft_members members;
    bool member = false;

    raft_members(leader->raft, &members);
    for (int i = 0; i < members.count; i++)
        member = member || members.at[i].id == node->id;
    if (!member && node->used) /* a number is used once */
        return;
    if (!member)
        begin_node(world, node);
    event.change = member ? RAFT_REMOVE : RAFT_ADD;
    event.member = (struct raft_member){.id = node->id, .incarnation = node->disk.incarnation};
    feed(world, leader, &event);
    world->changes++;
}

static void act(struct world *world, struct world_node *node)
{
    if (!node->used)
        return;
    if (!node->up) {
        if (happens(world, 200))
            start(world, node);
        return;
    }
    if (node->paused) {
        node->paused = !happens(world, 100);
        return;
    }
    if (happens(world, world->crash)) {
        crash(world, node);
        return;
    }
    if (happens(world, world->pause)) {
        node->paused = true;
        return;
    }
    if (happens(world, world->snapshot))
        take_snapshot(node);
    if (node->write_count > 0 && happens(world, 500))
        finish_write(world, node);
    if (raft_next_us(node->raft) <= world->now_us + node->skew_us) {
        struct raft_event event = {.type = RAFT_ON_TIME};

        feed(world, node, &event);
    }
    if (raft_role(node->raft) == RAFT_LEADER && happens(world, 300))
        propose(world, node);
    if (raft_role(node->raft) == RAFT_LEADER && happens(world, world->change))
        change_members(world, node);
    if (raft_role(node->raft) == RAFT_LEADER && happens(world, world->transfer)) {
        struct raft_event event = {.type = RAFT_ON_TRANSFER};

        feed(world, node, &event);
        world->transfers++;
    }
    if (happens(world, 600))
        flush(world, node);
}

bool world_step(struct world *world)
{
    if (world->message_count > 0 && draw(world, 3) > 0)
        deliver(world, (int)draw(world, (uint64_t)world->message_count));
    else
        act(world, some_node(world));
    if (draw(world, 4) == 0)
        world->now_us += (int64_t)draw(world, HEARTBEAT_US);
    if (happens(world, world->cut)) {
        bool *cut = &world->cuts[draw(world, WORLD_NODES)][draw(world, WORLD_NODES)];

        *cut = !*cut;
    }
    return !world->wrong[0];
}

static struct world_node *find_leader(struct world *world)
{
    struct world_node *best = NULL;

    for (int i = 0; i < WORLD_NODES; i++) {
        struct world_node *node = &world->nodes[i];

        if (node->used && node->up && raft_role(node->raft) == RAFT_LEADER &&
            (!best || raft_term(node->raft) > raft_term(best->raft)))
            best = node;
    }
    return best;
}

/* Has every member all that was ever committed, and something of this leader? */
static bool has_healed(struct world *world, uint64_t goal)
{
    struct world_node *leader = find_leader(world);
    struct raft_members members;

    if (!leader || raft_commit(leader->raft) < goal ||
        raft_commit(leader->raft) < world->committed_last)
        return false;
    raft_members(leader->raft, &members);
    for (int i = 0; i < members.count; i++) {
        const struct world_node *node = node_of(world, members.at[i].id);

        if (node->disk.incarnation == members.at[i].incarnation &&
            raft_commit(node->raft) < world->committed_last)
            return false;
    }
    return true;
}

bool world_heal(struct world *world)
{
    uint64_t goal = world->committed_last + 2;

    memset(world->cuts, 0, sizeof world->cuts);
    world->drop = world->duplicate = world->crash = world->wipe = world->change = 0;
    world->transfer = world->snapshot = world->pause = world->cut = 0;
    for (int i = 0; i < WORLD_NODES; i++) {
        world->nodes[i].paused = false;
        if (world->nodes[i].used && !world->nodes[i].up)
            start(world, &world->nodes[i]);
    }
    for (int round = 0; round < HEAL_ROUNDS && !world->wrong[0]; round++) {
        for (int left = world->message_count; left > 0 && !world->wrong[0]; left--)
            deliver(world, 0);
        for (int i = 0; i < WORLD_NODES && !world->wrong[0]; i++) {
            struct world_node *node = &world->nodes[i];

            if (!node->used)
                continue;
            while (node->write_count > 0 && !world->wrong[0])
                finish_write(world, node);
            if (raft_next_us(node->raft) <= world->now_us + node->skew_us) {
                struct raft_event event = {.type = RAFT_ON_TIME};

                feed(world, node, &event);
            }
            if (raft_role(node->raft) == RAFT_LEADER && raft_commit(node->raft) < goal &&
                round % 8 == 0)
                propose(world, node);
            flush(world, node);
        }
        if (has_healed(world, goal))
            return true;
        world->now_us += HEARTBEAT_US / 10;
    }
    wrong(world, "nobody gets on after all faults have ended: %d of %d committed",
          find_leader(world) ? (int)raft_commit(find_leader(world)->raft) : -1, (int)goal);
    return false;
}

/* ---- begin and end --------------------------------------------------------------------------- */

void world_begin(struct world *world, uint64_t seed)
{
    static const int often[] = {0, 0, 5, 20, 100};
    struct raft_members members = {.count = 0};
    int count;

    memset(world, 0, sizeof *world);
    world->seed = world->chance = seed;
    world->now_us = 1000000;
    world->limits = (struct raft_limits){.members = WORLD_NODES,
                                         .window = 32u << draw(world, 3),
                                         .in_flight_bytes = 16u << draw(world, 6),
                                         .election_us = ELECTION_US,
                                         .heartbeat_us = HEARTBEAT_US};
    world->messages = calloc(WORLD_MESSAGES, sizeof *world->messages);
    world->pool = calloc(POOL, sizeof *world->pool);
    world->drop = often[draw(world, 5)];
    world->duplicate = often[draw(world, 5)] * 2;
    world->crash = often[draw(world, 4)];
    world->change = often[draw(world, 4)];
    world->transfer = often[draw(world, 4)];
    world->snapshot = often[draw(world, 5)];
    world->pause = often[draw(world, 4)];
    world->cut = often[draw(world, 4)];
    count = (int)(1 + draw(world, 5));
    if (count >= 3 && world->change == 0)
        world->wipe = 500;
    for (int i = 0; i < WORLD_NODES; i++) {
        world->nodes[i].id = (uint64_t)i + 1;
        world->nodes[i].raft = calloc(1, raft_size(&world->limits));
        world->nodes[i].skew_us = (int64_t)draw(world, 1000000000);
    }
    /* Founded: entry 1, of term 1, which all have. It is a snapshot of that here. */
    for (int i = 0; i < count; i++)
        members.at[members.count++] = (struct raft_member){
            .id = (uint64_t)i + 1, .incarnation = ++world->next_incarnation, .votes = true};
    members.index = 1;
    for (int i = 0; i < count; i++) {
        struct world_node *node = &world->nodes[i];

        node->used = true;
        node->disk.incarnation = members.at[i].incarnation;
        node->disk.term = 1;
        node->disk.snapshot = (struct raft_id){1, 1, 77};
        node->disk.last = node->disk.commit = 1;
        node->disk.members = members;
        start(world, node);
    }
}

void world_print(const struct world *world)
{
    static const char *const roles[] = {"follower", "pre-candidate", "candidate", "leader"};

    for (int i = 0; i < WORLD_NODES; i++) {
        const struct world_node *node = &world->nodes[i];
        struct raft_members members;

        if (!node->used)
            continue;
        raft_members(node->raft, &members);
        printf("    node %d: %s%s, term %d, leader %d, log (%d) to %d, commit %d, members of %d:",
               (int)node->id, node->up ? "" : "down, ", roles[raft_role(node->raft)],
               (int)raft_term(node->raft), (int)raft_leader(node->raft),
               (int)node->disk.snapshot.index, (int)raft_last(node->raft),
               (int)raft_commit(node->raft), (int)members.index);
        for (int j = 0; j < members.count; j++)
            printf(" %d%s", (int)members.at[j].id, members.at[j].votes ? "" : " (learns)");
        printf("\n");
    }
}

void world_end(struct world *world)
{
    for (int i = 0; i < WORLD_NODES; i++)
        free(world->nodes[i].raft);
    free(world->messages);
    free(world->pool);
}
