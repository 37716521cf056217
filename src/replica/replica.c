/* replica.c: its life, the events that come, and what raft makes of them. */
#include "base/crc32c.h"
#include "base/switches.h"
#include "replica/inside.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void *replica_realloc(void *memory, size_t size)
{
    void *larger = realloc(memory, size ? size : 1);

    INVARIANT(larger != NULL);
    return larger;
}

void replica_note(struct replica *replica, int level, const char *format, ...)
{
    char text[ERROR_TEXT_MAX];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    replica->host.note(replica->host.context, level, text);
}

/* ---- roles ------------------------------------------------------------------------------------ */

void replica_set_role(struct replica *replica, enum replica_role role)
{
    replica->role = role;
    replica->host.role(replica->host.context, role);
}

void replica_stop(struct replica *replica, const char *format, ...)
{
    va_list arguments;

    if (is_stopped(replica))
        return;
    va_start(arguments, format);
    vsnprintf(replica->trouble.text, sizeof replica->trouble.text, format, arguments);
    va_end(arguments);
    replica->role = REPLICA_STOPPED;
    replica->leading = LEAD_IDLE;
    if (!replica->live)
        return; /* whoever starts it is told */
    propose_fail(replica);
    changes_fail(replica, true);
    replica->host.stopped(replica->host.context, replica->trouble.text);
    replica->host.role(replica->host.context, REPLICA_STOPPED);
}

/* [P4] What is committed is answered, whoever leads now. What the next leader's term brings is applied after the host knows that this node
 * does not lead in it. */
static void step_down(struct replica *replica)
{
    bool served;

    apply_terms(replica, SWITCHED(SWITCH_DEPOSED_ANSWERS) ? UINT64_MAX : replica->term);
    if (is_stopped(replica))
        return;
    served = replica->role == REPLICA_LEADING;
    replica->leading = LEAD_IDLE;
    replica->role = REPLICA_FOLLOWING;
    for (unsigned i = 0; i < replica->peer_count; i++)
        replica->peers[i].held.active = replica->peers[i].sending.active = false;
    propose_fail(replica);
    if (served)
        replica->host.role(replica->host.context, REPLICA_FOLLOWING);
    apply_all(replica); /* it may say what became of a change of the members */
    if (!is_stopped(replica))
        changes_fail(replica, false);
}

static void observe(struct replica *replica)
{
    bool is_leader = raft_role(replica->raft) == RAFT_LEADER;

    if (replica->leading != LEAD_IDLE && (!is_leader || raft_term(replica->raft) != replica->term))
        step_down(replica);
    if (is_leader && replica->leading == LEAD_IDLE && !is_stopped(replica)) {
        replica->leading = LEAD_ELECTED;
        replica->term = raft_term(replica->raft);
    }
}

/* ---- what raft puts out ----------------------------------------------------------------------- */

int replica_store_term(struct replica *replica, uint64_t term, uint64_t vote,
                       struct error_text *err)
{
    uint64_t kept = SWITCHED(SWITCH_VOTE_NOT_DURABLE) && vote != replica->options.id ? 0 : vote;
    int result = replica->io.store_term(replica->io.context, term, kept, err);

    replica->stored_term = term;
    replica->stored_vote = vote;
    return result;
}

/* Its bytes, and those that follow. */
static void add_entry(struct replica *replica, const struct raft_entry *entry, const void *more,
                      size_t more_size)
{
    size_t size = entry->size - more_size;
    unsigned char *bytes = NULL;

    if (entry->size > 0) {
        bytes = replica_realloc(NULL, entry->size);
        memcpy(bytes, entry->bytes, size);
    }
    if (more_size > 0 && more)
        memcpy(bytes + size, more, more_size);
    log_add(&replica->log, entry, bytes);
    if (entry->type == RAFT_CONFIG)
        members_push(replica, replica->log.last, bytes, entry->size);
}

/* The log as raft has it: what it has made itself, or taken from a message. */
static void follow_log(struct replica *replica, const struct raft_event *event)
{
    const struct raft_output *output = &replica->output;
    const struct raft_message *message = &event->message;

    if (output->made.type) {
        struct raft_entry made = output->made;

        made.bytes = output->made_bytes;
        add_entry(replica, &made, event->bytes, made.size - output->made_size);
    }
    if (output->taken == 0)
        return;
    INVARIANT(message->entries);
    if (output->taken <= replica->log.last) {
        members_cut(replica, output->taken);
        log_cut(&replica->log, output->taken);
    }
    for (uint64_t i = output->taken; i <= raft_last(replica->raft); i++)
        add_entry(replica, &message->entries[i - message->id.index - 1], NULL, 0);
}

void replica_write(struct replica *replica, uint64_t first, uint64_t last, uint64_t epoch)
{
    size_t count = (size_t)(last - first + 1);

    if (count > replica->record_capacity) {
        replica->record_capacity = 2 * count;
        replica->records = replica_realloc(replica->records, 2 * count * sizeof *replica->records);
    }
    if (replica->write_count == replica->write_capacity) {
        replica->write_capacity = replica->write_capacity ? 2 * replica->write_capacity : 16;
        replica->writes =
            replica_realloc(replica->writes, replica->write_capacity * sizeof *replica->writes);
    }
    replica->writes[replica->write_count++] =
        (struct write){++replica->write_number, last, epoch, replica->now_us};
    for (uint64_t i = first; i <= last; i++) {
        struct log_entry *entry = log_at(&replica->log, i);

        entry->write = replica->write_number;
        replica->records[i - first] = (struct journal_record){.index = i,
                                                              .term = entry->term,
                                                              .type = entry->type,
                                                              .bytes = entry->bytes,
                                                              .size = entry->size,
                                                              .chain = entry->chain,
                                                              .commit = raft_commit(replica->raft)};
    }
    replica->io.append(replica->io.context, replica->write_number, replica->records, count);
}

/* What raft finds fatal, and what is to be done about it, unless it says so itself. */
static void stop_for(struct replica *replica, const struct raft_event *event, const char *fatal)
{
    const struct raft_message *message = &event->message;

    if (event->type == RAFT_ON_MESSAGE && message->type == RAFT_APPEND_REPLY)
        replica_stop(replica,
                     "node %" PRIu64 " has committed entries up to %" PRIu64
                     ", and this leader's log ends at %" PRIu64
                     ": a node that elected it runs on an old copy of its data, and what was "
                     "acknowledged is missing; do not remove node %" PRIu64
                     ": put the right copy back, or restore from node %" PRIu64,
                     message->from, message->index, raft_last(replica->raft), message->from,
                     message->from);
    else if (event->type == RAFT_ON_MESSAGE && !strstr(fatal, "replace"))
        replica_stop(replica,
                     "%s, by a message of node %" PRIu64 " in term %" PRIu64
                     ": one of the two has an old copy of its data, or a damaged one: replace that "
                     "node",
                     fatal, message->from, message->term);
    else
        replica_stop(replica, "%s", fatal);
}

static void carry_out(struct replica *replica, const struct raft_event *event)
{
    const struct raft_output *output = &replica->output;
    struct error_text err;

    if (output->fatal) {
        stop_for(replica, event, output->fatal);
        return;
    }
    err.text[0] = '\0';
    if (output->persist && replica_store_term(replica, output->term, output->vote, &err) != HF_OK) {
        replica_stop(replica, "the term cannot be stored: %s" REPLICA_MEND_DISK, err.text);
        return;
    }
    follow_log(replica, event);
    for (int i = 0; i < output->message_count; i++)
        send_message(replica, &output->messages[i]);
    if (output->append)
        replica_write(replica, output->append_first, output->append_last, output->append_epoch);
    if (output->caught_up && !replica->members.caught_up) {
        replica->members.caught_up = output->caught_up;
        replica->members.caught_up_us = replica->now_us;
    }
    if (output->committed)
        propose_committed(replica);
    observe(replica);
}

int replica_step(struct replica *replica, struct raft_event *event)
{
    int result;

    if (is_stopped(replica))
        return RAFT_NOT_LEADER;
    event->now_us = replica->now_us;
    raft_step(replica->raft, event, &replica->output);
    result = replica->output.result;
    carry_out(replica, event);
    return result;
}

/* ---- others ----------------------------------------------------------------------------------- */

struct peer *peer_of(struct replica *replica, uint64_t id, bool makes)
{
    struct peer *unused = NULL;

    for (unsigned i = 0; i < replica->peer_count; i++) {
        struct peer *peer = &replica->peers[i];

        if (peer->id == id)
            return peer;
        /* One that nobody here knows any more, and for whom nothing is being read. */
        if (makes && !unused && !members_address(replica, peer->id) && !peer->reading.active &&
            !peer->sending.reads)
            unused = peer;
    }
    if (makes && !unused && replica->peer_count < PEERS_MAX)
        unused = &replica->peers[replica->peer_count++];
    if (!unused)
        return NULL;
    *unused = (struct peer){.id = id, .heard_us = -1};
    return unused;
}

/* What raft is to be told of them, and could not be while it put something out. */
static void tell_of_peers(struct replica *replica)
{
    for (unsigned i = 0; i < replica->peer_count; i++) {
        struct peer *peer = &replica->peers[i];

        if (peer->id && peer->snapshot_over) {
            struct raft_event over = {.type = RAFT_ON_SNAPSHOT_SENT, .member.id = peer->id};

            peer->snapshot_over = false;
            replica_step(replica, &over);
        }
        if (peer->id && peer->gone) {
            struct raft_event gone = {.type = RAFT_ON_GONE, .member.id = peer->id};

            peer->gone = false;
            replica_step(replica, &gone);
        }
    }
}

/* ---- events ----------------------------------------------------------------------------------- */

static bool set_now(struct replica *replica, int64_t now_us)
{
    if (now_us > replica->now_us)
        replica->now_us = now_us;
    return replica->live && !is_stopped(replica);
}

bool replica_received(struct replica *replica, uint64_t from, uint64_t incarnation,
                      const void *bytes, size_t size, int64_t now_us)
{
    struct message message = {.raft = {.from = from, .incarnation = incarnation}};
    struct raft_event event = {.type = RAFT_ON_MESSAGE};
    struct peer *peer;

    if (!set_now(replica, now_us))
        return true;
    if (size > 0 && *(const uint8_t *)bytes > replica->options.version)
        return version_on_newer(replica, from, bytes, size);
    if (!message_decode(bytes, size, replica->incoming, &message))
        return false;
    if (message.raft.to != replica->options.id || from == replica->options.id || from == 0)
        return true;
    peer = peer_of(replica, from, members_address(replica, from) != NULL);
    if (peer)
        peer->heard_us = now_us;
    if (message.raft.type == RAFT_SNAPSHOT) {
        install_on_piece(replica, &message);
    } else if (message.raft.type == MESSAGE_SNAPSHOT_ACK) {
        install_on_ack(replica, &message);
    } else if (message.raft.type == MESSAGE_VERSION) {
        version_heard(replica, &message);
    } else if (message.raft.type == MESSAGE_DIGEST) {
        divergence_on_message(replica, &message);
    } else {
        /* The leader is to know that we are there, and nothing more. */
        if (message.raft.type == RAFT_APPEND && install_blocks(replica)) {
            message.raft.id = (struct raft_id){0};
            message.raft.count = 0;
            message.raft.commit = 0;
        }
        event.message = message.raft;
        replica_step(replica, &event);
    }
    return true;
}

void replica_peer_down(struct replica *replica, uint64_t id, int64_t now_us)
{
    struct raft_event event = {.type = RAFT_ON_PEER_DOWN, .member.id = id};
    struct peer *peer = peer_of(replica, id, false);

    if (!set_now(replica, now_us))
        return;
    if (peer && peer->sending.active) {
        peer->sending.active = false;
        peer->snapshot_over = true;
    }
    replica_step(replica, &event);
}

void replica_written(struct replica *replica, uint64_t number, const struct error_text *failure,
                     int64_t now_us)
{
    struct raft_event event = {.type = RAFT_ON_PERSISTED};
    size_t done = 0;

    if (!set_now(replica, now_us))
        return;
    if (failure) {
        replica_stop(replica, "the log cannot be written: %s" REPLICA_MEND_DISK, failure->text);
        return;
    }
    for (; done < replica->write_count && replica->writes[done].number <= number; done++) {
        event.epoch = replica->writes[done].epoch;
        event.index = replica->writes[done].last;
    }
    if (done == 0)
        return;
    schedule_written(replica, replica->now_us - replica->writes[done - 1].since_us);
    log_written(&replica->log, replica->writes[done - 1].number);
    replica->write_count -= done;
    memmove(replica->writes, replica->writes + done,
            replica->write_count * sizeof *replica->writes);
    replica_step(replica, &event);
}

static int64_t next_us(const struct replica *replica, bool at_once)
{
    int64_t next[] = {raft_next_us(replica->raft), send_next_us(replica), install_next_us(replica),
                      changes_next_us(replica),
                      raft_may_propose(replica->raft) ? schedule_propose_us(replica) : NEVER_US};
    int64_t least = at_once ? replica->now_us : NEVER_US;

    for (size_t i = 0; i < sizeof next / sizeof *next; i++)
        if (next[i] < least)
            least = next[i];
    return least;
}

int64_t replica_pump(struct replica *replica, uint32_t expected, int64_t now_us)
{
    struct raft_event time = {.type = RAFT_ON_TIME}, flush = {.type = RAFT_ON_FLUSH};
    bool slicing;

    if (!set_now(replica, now_us))
        return NEVER_US;
    schedule_begin(replica, expected);
    if (replica->now_us >= raft_next_us(replica->raft))
        replica_step(replica, &time);
    tell_of_peers(replica);
    if (!is_stopped(replica))
        changes_pump(replica);
    divergence_pump(replica);
    version_pump(replica);
    propose_due(replica);
    schedule_overdue(replica);
    replica_step(replica, &flush);
    send_held(replica, false);
    if (!is_stopped(replica))
        apply_some(replica, schedule_apply(replica));
    if (is_stopped(replica))
        return NEVER_US;
    install_send_pump(replica);
    install_pump(replica);
    slicing = !is_stopped(replica) && snapshots_pump(replica);
    log_shrink(&replica->log, replica->applied.index, replica->options.memory_bytes);
    return is_stopped(replica)
               ? NEVER_US
               : next_us(replica, slicing || (replica->applied.index < raft_commit(replica->raft) &&
                                              schedule_apply(replica) > 0));
}
