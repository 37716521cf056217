#include "memory_io.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static struct memory_io *of(struct raft_io *io)
{
    return (struct memory_io *)io;
}

static void *copy(const void *bytes, size_t size)
{
    void *memory = malloc(size ? size : 1);

    assert(memory);
    if (size)
        memcpy(memory, bytes, size);
    return memory;
}

/* ---- what is durable -------------------------------------------------------------------------- */

raft_index memory_io_last(const struct memory_io *memory)
{
    return memory->first + memory->count - 1;
}

const struct raft_entry *memory_io_entry(const struct memory_io *memory, raft_index index)
{
    if (index < memory->first || index > memory_io_last(memory))
        return NULL;
    return &memory->entries[index - memory->first];
}

static void cut_from(struct memory_io *memory, raft_index index)
{
    while (memory->count > 0 && memory_io_last(memory) >= index)
        free(memory->entries[--memory->count].buf.base);
}

static void cut_up_to(struct memory_io *memory, raft_index index)
{
    size_t gone = index < memory->first ? 0 : (size_t)(index - memory->first + 1);

    gone = gone > memory->count ? memory->count : gone;
    for (size_t i = 0; i < gone; i++)
        free(memory->entries[i].buf.base);
    memmove(memory->entries, memory->entries + gone,
            (memory->count - gone) * sizeof(struct raft_entry));
    memory->count -= gone;
    memory->first += gone;
}

static void store(struct memory_io *memory, raft_index index, const struct raft_entry *entry)
{
    cut_from(memory, index);
    if (memory->count == 0)
        memory->first = index;
    if (memory->count == memory->capacity) {
        memory->capacity = memory->capacity ? memory->capacity * 2 : 64;
        memory->entries = realloc(memory->entries, memory->capacity * sizeof *memory->entries);
        assert(memory->entries);
    }
    memory->entries[memory->count] = *entry;
    memory->entries[memory->count].batch = NULL;
    memory->entries[memory->count++].buf.base = copy(entry->buf.base, entry->buf.len);
}

static int copy_configuration(const struct raft_configuration *from, struct raft_configuration *to)
{
    int result = 0;

    raft_configuration_init(to);
    for (unsigned i = 0; i < from->n && result == 0; i++)
        result = raft_configuration_add(to, from->servers[i].id, from->servers[i].address,
                                        from->servers[i].role);
    return result;
}

static void forget_snapshot(struct memory_io *memory)
{
    raft_configuration_close(&memory->snapshot.configuration);
    free(memory->snapshot_bytes.base);
    memory->snapshot_bytes = (struct raft_buffer){0};
    memset(&memory->snapshot, 0, sizeof memory->snapshot);
}

static void store_snapshot(struct memory_io *memory, const struct memory_put *put)
{
    size_t size = 0;

    forget_snapshot(memory);
    memory->snapshot = *put->snapshot;
    copy_configuration(&put->snapshot->configuration, &memory->snapshot.configuration);
    for (unsigned i = 0; i < put->snapshot->n_bufs; i++)
        size += put->snapshot->bufs[i].len;
    memory->snapshot_bytes = (struct raft_buffer){copy(NULL, 0), 0};
    memory->snapshot_bytes.base = realloc(memory->snapshot_bytes.base, size ? size : 1);
    for (unsigned i = 0; i < put->snapshot->n_bufs; i++) {
        const struct raft_buffer *buffer = &put->snapshot->bufs[i];

        memcpy((char *)memory->snapshot_bytes.base + memory->snapshot_bytes.len, buffer->base,
               buffer->len);
        memory->snapshot_bytes.len += buffer->len;
    }
    if (put->trailing == 0)
        cut_up_to(memory, UINT64_MAX - 1);
    else if (put->snapshot->index > put->trailing)
        cut_up_to(memory, put->snapshot->index - put->trailing);
}

/* ---- raft_io ---------------------------------------------------------------------------------- */

static int on_init(struct raft_io *io, raft_id id, const char *address)
{
    (void)address;
    of(io)->id = id;
    return 0;
}

static struct raft_snapshot *loaded_snapshot(const struct memory_io *memory)
{
    struct raft_snapshot *snapshot = raft_malloc(sizeof *snapshot);

    assert(snapshot);
    *snapshot = memory->snapshot;
    copy_configuration(&memory->snapshot.configuration, &snapshot->configuration);
    snapshot->n_bufs = 1;
    snapshot->bufs = raft_malloc(sizeof *snapshot->bufs);
    assert(snapshot->bufs);
    snapshot->bufs[0].base = copy(memory->snapshot_bytes.base, memory->snapshot_bytes.len);
    snapshot->bufs[0].len = memory->snapshot_bytes.len;
    return snapshot;
}

static int on_load(struct raft_io *io, raft_term *ret_term, raft_id *ret_voted_for,
                   struct raft_snapshot **ret_snapshot, raft_index *ret_start,
                   struct raft_entry *ret_entries[], size_t *ret_count)
{
    struct memory_io *memory = of(io);

    *ret_term = memory->term;
    *ret_voted_for = memory->voted_for;
    *ret_snapshot = memory->snapshot.index ? loaded_snapshot(memory) : NULL;
    *ret_start = memory->count ? memory->first : memory->snapshot.index + 1;
    *ret_count = memory->count;
    *ret_entries = NULL;
    if (memory->count) {
        *ret_entries = raft_malloc(memory->count * sizeof **ret_entries);
        assert(*ret_entries);
    }
    for (size_t i = 0; i < memory->count; i++) {
        (*ret_entries)[i] = memory->entries[i];
        (*ret_entries)[i].buf.base = copy(memory->entries[i].buf.base, memory->entries[i].buf.len);
        (*ret_entries)[i].batch = (*ret_entries)[i].buf.base;
    }
    memory->next = *ret_start + memory->count;
    return 0;
}

static int on_start(struct raft_io *io, unsigned msecs, raft_io_tick_cb tick,
                    raft_io_recv_cb receive)
{
    (void)msecs;
    of(io)->tick = tick;
    of(io)->receive = receive;
    of(io)->running = true;
    return 0;
}

static int on_bootstrap(struct raft_io *io, const struct raft_configuration *configuration)
{
    struct memory_io *memory = of(io);
    struct raft_entry entry = {.term = 1, .type = RAFT_CHANGE};

    if (memory->term != 0)
        return RAFT_CANTBOOTSTRAP;
    memory->term = 1;
    if (raft_configuration_encode(configuration, &entry.buf) != 0)
        return RAFT_NOMEM;
    store(memory, 1, &entry);
    raft_free(entry.buf.base);
    return 0;
}

static int on_recover(struct raft_io *io, const struct raft_configuration *configuration)
{
    (void)io;
    (void)configuration;
    return RAFT_INVALID;
}

static int on_set_term(struct raft_io *io, raft_term term)
{
    struct memory_io *memory = of(io);

    if (memory->fail_set_term)
        return memory->fail_set_term;
    if (memory->term != term)
        memory->voted_for = 0;
    memory->term = term;
    return 0;
}

static int on_set_vote(struct raft_io *io, raft_id id)
{
    struct memory_io *memory = of(io);

    if (memory->fail_set_vote)
        return memory->fail_set_vote;
    memory->voted_for = id;
    return 0;
}

static int on_send(struct raft_io *io, struct raft_io_send *req, const struct raft_message *message,
                   raft_io_send_cb done)
{
    struct memory_io *memory = of(io);

    assert(memory->sent_count < MEMORY_WAITING_MAX);
    req->cb = done;
    memory->sent[memory->sent_count++] = (struct memory_sent){req, *message};
    if (message->type == RAFT_INSTALL_SNAPSHOT) {
        memory->installs++;
        memory->installed |= 1U << message->server_id;
        memory->install_index = message->install_snapshot.last_index;
        memory->install_term = message->install_snapshot.last_term;
    }
    return 0;
}

static int on_append(struct raft_io *io, struct raft_io_append *req,
                     const struct raft_entry entries[], unsigned n, raft_io_append_cb done)
{
    struct memory_io *memory = of(io);

    memory->append_calls++;
    if (memory->fail_append)
        return memory->fail_append;
    assert(memory->append_count < MEMORY_WAITING_MAX);
    req->cb = done;
    memory->appends[memory->append_count++] = (struct memory_append){req, entries, n, memory->next};
    memory->next += n;
    return 0;
}

static int on_truncate(struct raft_io *io, raft_index index)
{
    struct memory_io *memory = of(io);

    if (index < memory->next) {
        cut_from(memory, index);
        memory->next = index;
    }
    return 0;
}

static int on_snapshot_put(struct raft_io *io, unsigned trailing, struct raft_io_snapshot_put *req,
                           const struct raft_snapshot *snapshot, raft_io_snapshot_put_cb done)
{
    struct memory_io *memory = of(io);

    memory->put_calls++;
    if (memory->fail_put)
        return memory->fail_put;
    assert(memory->put_count < MEMORY_WAITING_MAX);
    req->cb = done;
    memory->puts[memory->put_count++] = (struct memory_put){req, snapshot, trailing};
    if (trailing == 0)
        memory->next = snapshot->index + 1;
    return 0;
}

static int on_snapshot_get(struct raft_io *io, struct raft_io_snapshot_get *req,
                           raft_io_snapshot_get_cb done)
{
    struct memory_io *memory = of(io);

    memory->get_calls++;
    assert(memory->get_count < MEMORY_WAITING_MAX);
    req->cb = done;
    memory->gets[memory->get_count++] = req;
    return 0;
}

static raft_time on_time(struct raft_io *io)
{
    return of(io)->now_ms;
}

static int on_random(struct raft_io *io, int min, int max)
{
    (void)io;
    (void)max;
    return min;
}

static void on_close(struct raft_io *io, raft_io_close_cb done)
{
    of(io)->closed = done;
    of(io)->running = false;
}

/* ---- happening -------------------------------------------------------------------------------- */

static void settle_append(struct memory_io *memory, int status)
{
    struct memory_append append = memory->appends[0];

    memmove(memory->appends, memory->appends + 1, --memory->append_count * sizeof append);
    if (status == 0)
        for (unsigned i = 0; i < append.n; i++)
            store(memory, append.index + i, &append.entries[i]);
    append.req->cb(append.req, status);
}

static void settle_put(struct memory_io *memory, int status)
{
    struct memory_put put = memory->puts[0];

    memmove(memory->puts, memory->puts + 1, --memory->put_count * sizeof put);
    if (status == 0)
        store_snapshot(memory, &put);
    put.req->cb(put.req, status);
}

static void settle_get(struct memory_io *memory)
{
    struct raft_io_snapshot_get *req = memory->gets[0];
    int status = memory->spoil_get;

    memmove(memory->gets, memory->gets + 1, --memory->get_count * sizeof memory->gets[0]);
    req->cb(req, status ? NULL : loaded_snapshot(memory), status);
}

static bool answer_to(const struct memory_io *memory, const struct raft_message *message,
                      struct raft_message *ret_answer)
{
    raft_index last;
    struct raft_message answer = {.server_id = message->server_id,
                                  .server_address = message->server_address};

    if (message->type == RAFT_REQUEST_VOTE) {
        answer.type = RAFT_REQUEST_VOTE_RESULT;
        answer.request_vote_result =
            (struct raft_request_vote_result){.version = 2,
                                              .term = message->request_vote.term,
                                              .vote_granted = true,
                                              .pre_vote = message->request_vote.pre_vote};
    } else if (message->type == RAFT_APPEND_ENTRIES) {
        last = message->append_entries.prev_log_index + message->append_entries.n_entries;
        last = memory->ack_max && last > memory->ack_max ? memory->ack_max : last;
        answer.type = RAFT_APPEND_ENTRIES_RESULT;
        answer.append_entries_result = (struct raft_append_entries_result){
            .version = 2, .term = message->append_entries.term, .last_log_index = last};
        if ((message->server_id == memory->empty || message->server_id == memory->empty_too) &&
            message->append_entries.prev_log_index > 0) {
            answer.append_entries_result.rejected = message->append_entries.prev_log_index;
            answer.append_entries_result.last_log_index = 0;
        }
    } else {
        return false;
    }
    *ret_answer = answer;
    return true;
}

static void settle_sent(struct memory_io *memory)
{
    struct memory_sent sent = memory->sent[0];
    struct raft_message answer;
    char address[64] = "";
    bool answered = memory->peers_answer && sent.message.server_id != memory->silent &&
                    answer_to(memory, &sent.message, &answer);

    if (sent.message.type == RAFT_APPEND_ENTRIES_RESULT)
        memory->told = sent.message.append_entries_result;
    if (sent.message.type == RAFT_REQUEST_VOTE_RESULT)
        memory->voted = sent.message.request_vote_result;
    memmove(memory->sent, memory->sent + 1, --memory->sent_count * sizeof sent);
    if (sent.message.type == RAFT_INSTALL_SNAPSHOT && memory->slow == sent.message.server_id) {
        assert(!memory->slow_sent.req);
        memory->slow_sent = sent;
        return;
    }
    strncpy(address, sent.message.server_address, sizeof address - 1);
    sent.req->cb(sent.req, 0);
    answer.server_address = address;
    if (answered && memory->running)
        memory->receive(&memory->io, &answer);
}

static void settle_slow(struct memory_io *memory)
{
    struct raft_io_send *req = memory->slow_sent.req;

    memory->slow_sent.req = NULL;
    req->cb(req, 0);
}

void memory_io_settle(struct memory_io *memory)
{
    for (;;) {
        if (memory->sent_count > 0)
            settle_sent(memory);
        else if (memory->slow_sent.req && (memory->closed || !memory->slow))
            settle_slow(memory);
        else if (memory->append_count > 0 && memory->closed)
            settle_append(memory, RAFT_CANCELED);
        else if (memory->append_count > 0 && !memory->hold_appends)
            settle_append(memory, memory->spoil_append);
        else if (memory->put_count > 0 && memory->closed)
            settle_put(memory, RAFT_CANCELED);
        else if (memory->put_count > 0 && !memory->hold_puts)
            settle_put(memory, memory->spoil_put);
        else if (memory->get_count > 0 && (memory->closed || !memory->hold_gets))
            settle_get(memory);
        else
            break;
    }
    if (memory->closed) {
        raft_io_close_cb closed = memory->closed;

        memory->closed = NULL;
        closed(&memory->io);
    }
}

void memory_io_tick(struct memory_io *memory, unsigned ms)
{
    memory->now_ms += ms;
    if (memory->running)
        memory->tick(&memory->io);
}

void memory_io_receive(struct memory_io *memory, struct raft_message *message)
{
    assert(memory->running);
    memory->receive(&memory->io, message);
}

static size_t batch_size(const struct raft_buffer *entries, unsigned count)
{
    size_t size = 0;

    for (unsigned i = 0; i < count; i++)
        size += entries[i].len;
    return size;
}

void memory_io_receive_entries(struct memory_io *memory, raft_id id, raft_term term,
                               raft_index prev_index, raft_term prev_term, raft_index commit,
                               const struct raft_buffer *entries, unsigned count)
{
    struct raft_message message = {.type = RAFT_APPEND_ENTRIES, .server_id = id};
    struct raft_append_entries *append = &message.append_entries;
    char *batch = NULL;

    message.server_address = "other";
    *append = (struct raft_append_entries){.term = term,
                                           .prev_log_index = prev_index,
                                           .prev_log_term = prev_term,
                                           .leader_commit = commit};
    if (count > 0) {
        append->n_entries = count;
        append->entries = raft_malloc(count * sizeof *append->entries);
        batch = raft_malloc(batch_size(entries, count)); /* one for all, as from the network */
        assert(append->entries && batch);
    }
    for (unsigned i = 0; i < count; i++) {
        struct raft_entry *entry = &append->entries[i];

        *entry = (struct raft_entry){.term = term, .type = RAFT_COMMAND, .batch = batch};
        entry->buf.base = batch + batch_size(entries, i);
        entry->buf.len = entries[i].len;
        memcpy(entry->buf.base, entries[i].base, entries[i].len);
    }
    memory_io_receive(memory, &message);
}

void memory_io_receive_entry(struct memory_io *memory, raft_id id, raft_term term,
                             raft_index prev_index, raft_term prev_term, raft_index commit,
                             const void *bytes, size_t size)
{
    struct raft_buffer entry = {.base = (void *)(uintptr_t)bytes, .len = size};

    memory_io_receive_entries(memory, id, term, prev_index, prev_term, commit, &entry,
                              bytes ? 1 : 0);
}

/* ---- beginning and end ------------------------------------------------------------------------ */

void memory_io_init(struct memory_io *memory)
{
    memset(memory, 0, sizeof *memory);
    memory->first = 1;
    memory->io = (struct raft_io){.version = 2,
                                  .init = on_init,
                                  .close = on_close,
                                  .load = on_load,
                                  .start = on_start,
                                  .bootstrap = on_bootstrap,
                                  .recover = on_recover,
                                  .set_term = on_set_term,
                                  .set_vote = on_set_vote,
                                  .send = on_send,
                                  .append = on_append,
                                  .truncate = on_truncate,
                                  .snapshot_put = on_snapshot_put,
                                  .snapshot_get = on_snapshot_get,
                                  .time = on_time,
                                  .random = on_random};
}

void memory_io_crash(struct memory_io *memory)
{
    assert(!memory->running && memory->append_count == 0 && memory->put_count == 0);
    memory->sent_count = 0;
    memory->io.errmsg[0] = '\0';
    memory->hold_appends = memory->hold_puts = false;
    memory->fail_set_term = memory->fail_set_vote = memory->fail_append = memory->fail_put = 0;
    memory->spoil_append = memory->spoil_put = 0;
}

void memory_io_free(struct memory_io *memory)
{
    cut_from(memory, 0);
    free(memory->entries);
    forget_snapshot(memory);
}
