#include "contract.h"

static struct subject *of_io(struct raft_io *io)
{
    struct raft *raft = io->data;

    return raft->data;
}

/* ---- the state machine ------------------------------------------------------------------------ */

struct payload {
    uint64_t index, term;
};

static int on_apply(struct raft_fsm *fsm, const struct raft_buffer *buffer, void **ret_result)
{
    struct subject *subject = fsm->data;
    const struct payload *payload = buffer->base;
    size_t length = strlen(subject->state);

    assert_int_equal(buffer->len, sizeof *payload);
    assert_true(length + 50 < sizeof subject->state);
    snprintf(subject->state + length, sizeof subject->state - length, "%s%llu^%llu",
             length ? " " : "", (unsigned long long)payload->index,
             (unsigned long long)payload->term);
    *ret_result = NULL;
    return 0;
}

static int on_snapshot(struct raft_fsm *fsm, struct raft_buffer *ret_buffers[], unsigned *ret_count)
{
    struct subject *subject = fsm->data;
    struct raft_buffer *buffer = raft_malloc(sizeof *buffer);

    assert_non_null(buffer);
    buffer->len = strlen(subject->state);
    buffer->base = raft_malloc(buffer->len + 1);
    assert_non_null(buffer->base);
    memcpy(buffer->base, subject->state, buffer->len);
    *ret_buffers = buffer;
    *ret_count = 1;
    return 0;
}

static int on_restore(struct raft_fsm *fsm, struct raft_buffer *buffer)
{
    struct subject *subject = fsm->data;

    assert_true(buffer->len < sizeof subject->state);
    memcpy(subject->state, buffer->base, buffer->len);
    subject->state[buffer->len] = '\0';
    subject->restores++;
    raft_free(buffer->base);
    return 0;
}

/* ---- its raft_io ------------------------------------------------------------------------------ */

static raft_term term_in_memory(const struct subject *subject, raft_index index)
{
    const struct raft_entry *entry = memory_io_entry(&subject->memory, index);

    return entry ? entry->term : 0;
}

static int on_send(struct raft_io *io, struct raft_io_send *req, const struct raft_message *message,
                   raft_io_send_cb done)
{
    struct subject *subject = of_io(io);
    struct told *told = &subject->told[subject->told_count++];

    assert_true(subject->told_count < TOLD_MAX);
    *told = (struct told){.message = *message};
    told->message.server_address = NULL;
    if (message->type == RAFT_APPEND_ENTRIES_RESULT)
        told->stored_term = term_in_memory(subject, message->append_entries_result.last_log_index);
    if (subject->keep_at == message->type)
        subject_keep(subject);
    done(req, 0);
    return 0;
}

static int on_start(struct raft_io *io, unsigned msecs, raft_io_tick_cb tick,
                    raft_io_recv_cb receive)
{
    struct subject *subject = of_io(io);

    (void)msecs;
    subject->tick = tick;
    subject->receive = receive;
    return subject->saved.start(io, INT_MAX, tick, receive); /* nothing ticks by itself */
}

static raft_time on_time(struct raft_io *io)
{
    return of_io(io)->now_ms;
}

static int on_random(struct raft_io *io, int min, int max)
{
    (void)io;
    (void)max;
    return min;
}

/* ---- its life --------------------------------------------------------------------------------- */

void subject_init(struct subject *subject, unsigned members)
{
    memset(subject, 0, sizeof *subject);
    memory_io_init(&subject->memory);
    subject->members = members;
    subject->now_ms = 1000000;
}

static void add_members(struct raft_configuration *configuration, unsigned count)
{
    char address[16];

    raft_configuration_init(configuration);
    for (unsigned id = 1; id <= count; id++) {
        snprintf(address, sizeof address, "node %u", id);
        assert_int_equal(raft_configuration_add(configuration, id, address, RAFT_VOTER), 0);
    }
}

static void found(struct subject *subject)
{
    struct raft_configuration configuration;
    int result;

    add_members(&configuration, subject->members);
    result = raft_bootstrap(&subject->raft, &configuration);
    assert_true(result == 0 || result == RAFT_CANTBOOTSTRAP);
    raft_configuration_close(&configuration);
}

static void take_over(struct subject *subject, struct raft_io *io)
{
    subject->io = io;
    subject->saved = *io;
    io->send = on_send;
    io->start = on_start;
    io->time = on_time;
    io->random = on_random;
}

void subject_start(struct subject *subject)
{
    struct raft *raft = &subject->raft;

    if (subject->home[0])
        disk_enter(subject);
    take_over(subject, subject->home[0] ? storage_io(subject->storage) : &subject->memory.io);
    subject->fsm = (struct raft_fsm){.version = 1,
                                     .data = subject,
                                     .apply = on_apply,
                                     .snapshot = on_snapshot,
                                     .restore = on_restore};
    memset(raft, 0, sizeof *raft);
    raft->data = subject;
    assert_int_equal(raft_init(raft, subject->io, &subject->fsm, 1, "node 1"), 0);
    raft->tracer = NULL;
    raft_set_heartbeat_timeout(raft, HEARTBEAT_MS);
    raft_set_election_timeout(raft, ELECTION_MS);
    raft_set_pre_vote(raft, true);
    raft_set_capacity_threshold(raft, 0);
    raft_set_snapshot_threshold(raft, UINT_MAX);
    found(subject);
    if (raft_start(raft) != 0)
        fail_msg("raft_start: %s", raft_errmsg(raft));
    subject->running = true;
}

static void on_closed(struct raft *raft)
{
    struct subject *subject = raft->data;

    subject->closed = true;
}

void subject_stop(struct subject *subject)
{
    subject->running = subject->closed = false;
    raft_close(&subject->raft, on_closed);
    SUBJECT_UNTIL(subject, subject->closed);
    if (subject->home[0])
        disk_leave(subject);
}

void subject_free(struct subject *subject)
{
    if (subject->running)
        subject_stop(subject);
    memory_io_free(&subject->memory);
    disk_remove(subject);
}

void subject_turn(struct subject *subject)
{
    if (subject->home[0]) {
        uv_run(&subject->loop, UV_RUN_ONCE);
        if (subject->running)
            storage_flush(subject->storage, false);
    } else {
        memory_io_settle(&subject->memory);
    }
}

void subject_pass(struct subject *subject, unsigned ms)
{
    for (unsigned passed = 0; passed < ms; passed += HEARTBEAT_MS) {
        subject->now_ms += HEARTBEAT_MS;
        subject->tick(subject->io);
        subject_turn(subject);
    }
}

void subject_stand(struct subject *subject)
{
    for (unsigned passed = 0; raft_state(&subject->raft) != RAFT_CANDIDATE;
         passed += HEARTBEAT_MS) {
        assert_true(passed <= 2 * ELECTION_MS);
        subject_pass(subject, HEARTBEAT_MS);
    }
}

void subject_lead(struct subject *subject)
{
    raft_term term = raft_current_term(&subject->raft) + 1;

    subject_stand(subject);
    for (int round = 0; round < 2; round++)
        for (raft_id id = 2; id <= subject->members / 2 + 1; id++)
            hear_vote(subject, id, term, round == 0);
    assert_int_equal(raft_state(&subject->raft), RAFT_LEADER);
    assert_int_equal(raft_current_term(&subject->raft), term);
}

static void fill_entry(struct raft_entry *entry, struct payload *payload, raft_index index,
                       raft_term term)
{
    *payload = (struct payload){index, term};
    *entry =
        (struct raft_entry){.term = term, .type = RAFT_COMMAND, .buf = {payload, sizeof *payload}};
}

int subject_propose(struct subject *subject)
{
    struct payload *payload = raft_malloc(sizeof *payload);
    struct raft_entry entry;
    int result;

    assert_non_null(payload);
    assert_true(subject->proposal_count < 16);
    fill_entry(&entry, payload, raft_last_index(&subject->raft) + 1,
               raft_current_term(&subject->raft));
    result = raft_apply(&subject->raft, &subject->proposals[subject->proposal_count++], &entry.buf,
                        1, NULL);
    if (result != 0)
        raft_free(payload);
    return result;
}

/* ---- what it hears ---------------------------------------------------------------------------- */

static void hear(struct subject *subject, raft_id from, struct raft_message *message)
{
    char address[16];

    snprintf(address, sizeof address, "node %u", (unsigned)from);
    message->server_id = from;
    message->server_address = address;
    subject->receive(subject->io, message);
}

void hear_append(struct subject *subject, struct append append)
{
    struct raft_message message = {.type = RAFT_APPEND_ENTRIES};
    struct raft_append_entries *entries = &message.append_entries;
    struct payload *batch;

    entries->term = append.term;
    entries->prev_log_index = append.prev;
    entries->prev_log_term = append.prev_term;
    entries->leader_commit = append.commit;
    entries->n_entries = append.count;
    if (append.count > 0) {
        entries->entries = raft_calloc(append.count, sizeof *entries->entries);
        batch = raft_calloc(append.count, sizeof *batch);
        assert_true(entries->entries && batch);
        for (unsigned i = 0; i < append.count; i++) {
            fill_entry(&entries->entries[i], &batch[i], append.prev + 1 + i, append.terms[i]);
            entries->entries[i].batch = batch;
        }
    }
    hear(subject, append.from, &message);
}

bool hear_vote_request(struct subject *subject, struct vote_request request)
{
    struct raft_message message = {.type = RAFT_REQUEST_VOTE};
    unsigned before = told_count(subject, RAFT_REQUEST_VOTE_RESULT, request.from);
    const struct raft_request_vote_result *result;

    message.request_vote = (struct raft_request_vote){.version = 2,
                                                      .term = request.term,
                                                      .candidate_id = request.from,
                                                      .last_log_index = request.last,
                                                      .last_log_term = request.last_term,
                                                      .disrupt_leader = request.disrupt,
                                                      .pre_vote = request.pre};
    hear(subject, request.from, &message);
    assert_int_equal(told_count(subject, RAFT_REQUEST_VOTE_RESULT, request.from), before + 1);
    result =
        &told_last(subject, RAFT_REQUEST_VOTE_RESULT, request.from)->message.request_vote_result;
    assert_int_equal(result->pre_vote, request.pre);
    return result->vote_granted;
}

void hear_vote(struct subject *subject, raft_id from, raft_term term, bool pre)
{
    struct raft_message message = {.type = RAFT_REQUEST_VOTE_RESULT};

    message.request_vote_result = (struct raft_request_vote_result){
        .version = 2, .term = term, .vote_granted = true, .pre_vote = pre};
    hear(subject, from, &message);
}

void hear_acknowledged(struct subject *subject, raft_id from, raft_index index)
{
    struct raft_message message = {.type = RAFT_APPEND_ENTRIES_RESULT};

    message.append_entries_result = (struct raft_append_entries_result){
        .version = 2, .term = raft_current_term(&subject->raft), .last_log_index = index};
    hear(subject, from, &message);
}

void hear_install(struct subject *subject, struct install install)
{
    struct raft_message message = {.type = RAFT_INSTALL_SNAPSHOT};
    struct raft_install_snapshot *snapshot = &message.install_snapshot;

    snapshot->term = install.term;
    snapshot->last_index = install.index;
    snapshot->last_term = install.last_term;
    snapshot->conf_index = 1;
    add_members(&snapshot->conf, install.members);
    snapshot->data.len = strlen(install.state);
    snapshot->data.base = raft_malloc(snapshot->data.len + 1);
    assert_non_null(snapshot->data.base);
    memcpy(snapshot->data.base, install.state, snapshot->data.len);
    hear(subject, install.from, &message);
}

void hear_timeout_now(struct subject *subject, raft_id from, raft_term term, raft_index last,
                      raft_term last_term)
{
    struct raft_message message = {.type = RAFT_TIMEOUT_NOW};

    message.timeout_now =
        (struct raft_timeout_now){.term = term, .last_log_index = last, .last_log_term = last_term};
    hear(subject, from, &message);
}

/* ---- what it says ----------------------------------------------------------------------------- */

void told_forget(struct subject *subject)
{
    subject->told_count = 0;
}

const struct told *told_last(const struct subject *subject, enum raft_message_type type, raft_id to)
{
    for (unsigned i = subject->told_count; i > 0; i--)
        if (subject->told[i - 1].message.type == type &&
            subject->told[i - 1].message.server_id == to)
            return &subject->told[i - 1];
    return NULL;
}

unsigned told_count(const struct subject *subject, enum raft_message_type type, raft_id to)
{
    unsigned count = 0;

    for (unsigned i = 0; i < subject->told_count; i++)
        count += subject->told[i].message.type == type && subject->told[i].message.server_id == to;
    return count;
}

raft_index told_acknowledged(const struct subject *subject, raft_id to)
{
    raft_index highest = 0;

    for (unsigned i = 0; i < subject->told_count; i++) {
        const struct raft_message *message = &subject->told[i].message;
        const struct raft_append_entries_result *result = &message->append_entries_result;

        if (message->type == RAFT_APPEND_ENTRIES_RESULT && message->server_id == to &&
            result->rejected == 0 && result->last_log_index > highest)
            highest = result->last_log_index;
    }
    return highest;
}
