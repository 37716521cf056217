#include "tools.h"

#include "base/clock.h"

/* ---- the host --------------------------------------------------------------------------------- */

static int64_t on_boot_us(void *context)
{
    struct witness *witness = context;

    return witness->now_us ? witness->now_us : clock_boot_ns() / 1000;
}

static int64_t on_wall_us(void *context)
{
    struct witness *witness = context;

    return witness->wall_us;
}

/* Not random at all, so that a failure comes again. */
static void on_random(void *context, void *bytes, size_t size)
{
    struct witness *witness = context;
    unsigned char *byte = bytes;

    for (size_t i = 0; i < size; i++) {
        witness->random = witness->random * UINT64_C(6364136223846793005) + 1;
        byte[i] = (unsigned char)(witness->random >> 56);
    }
}

static void on_effect(void *context, void *named, const struct core_effect *effect)
{
    struct witness *witness = context;
    size_t number = (size_t)(uintptr_t)named;

    if (effect->kind == EFFECT_CHANGED) {
        assert_null(named);
        witness->changes++;
        witness->why = effect->why;
    }
    if (effect->kind != EFFECT_ANSWER && effect->kind != EFFECT_READ)
        return;
    assert_in_range(number, 1, REQUESTS_MAX - 1);
    witness->heard[number].answers++;
    witness->heard[number].kind = effect->kind;
    witness->heard[number].answer = effect->answer;
    witness->heard[number].number = effect->number;
    witness->answers++;
    if (witness->on_answer)
        witness->on_answer(witness, number);
}

static void on_failed(void *context, void *named, enum replica_failure failure)
{
    struct witness *witness = context;
    size_t number = (size_t)(uintptr_t)named;

    assert_in_range(number, 1, REQUESTS_MAX - 1);
    witness->heard[number].failures++;
    witness->heard[number].failure = failure;
    witness->failures++;
}

static void on_changed(void *context, void *about, enum replica_change result)
{
    struct witness *witness = context;

    witness->changes_told++;
    witness->changed = about;
    witness->change = result;
}

static void on_role(void *context, enum replica_role role)
{
    struct witness *witness = context;

    assert_true(witness->role_count < ROLES_MAX);
    witness->roles[witness->role_count++] = role;
}

static void on_stopped(void *context, const char *why)
{
    struct witness *witness = context;

    witness->stops++;
    snprintf(witness->stopped, sizeof witness->stopped, "%s", why);
}

static void on_note(void *context, int level, const char *words)
{
    struct witness *witness = context;

    assert_in_range(level, 1, 4);
    witness->notes++;
    snprintf(witness->noted, sizeof witness->noted, "%s", words);
}

void witness_init(struct witness *witness)
{
    memset(witness, 0, sizeof *witness);
    witness->now_us = START_US;
    witness->random = 7;
}

struct replica_host witness_host(struct witness *witness)
{
    return (struct replica_host){.context = witness,
                                 .boot_us = on_boot_us,
                                 .wall_us = witness->wall_us ? on_wall_us : NULL,
                                 .random = on_random,
                                 .effect = on_effect,
                                 .failed = on_failed,
                                 .changed = on_changed,
                                 .role = on_role,
                                 .stopped = on_stopped,
                                 .note = on_note};
}

enum replica_role witness_role(const struct witness *witness)
{
    return witness->role_count ? witness->roles[witness->role_count - 1] : REPLICA_FOLLOWING;
}

void *request(size_t number)
{
    return (void *)(uintptr_t)number;
}

/* ---- commands --------------------------------------------------------------------------------- */

struct core_text text(const char *words)
{
    return (struct core_text){words, strlen(words)};
}

struct core_command acquire(const char *name, const char *lease, uint32_t ttl_ms)
{
    return (struct core_command){
        .op = CORE_ACQUIRE, .name = text(name), .lease = text(lease), .ttl_ms = ttl_ms};
}

struct core_command read_now(void)
{
    return (struct core_command){.op = CORE_READ};
}

struct core_command numbered(size_t number, uint32_t ttl_ms, char ret_name[32], char ret_lease[32])
{
    snprintf(ret_name, 32, "jobs/%zu", number);
    snprintf(ret_lease, 32, "lease-%zu", number);
    return acquire(ret_name, ret_lease, ttl_ms);
}

void submit_numbered(struct replica *replica, size_t number, uint32_t ttl_ms)
{
    char name[32], lease[32];
    struct core_command command = numbered(number, ttl_ms, name, lease);

    assert_int_equal(replica_submit(replica, &command, request(number)), HF_OK);
}

/* ---- a replica in memory ---------------------------------------------------------------------- */

static const struct replica_member all[] = {
    {1, "one"}, {2, "two"}, {3, "three"}, {4, "four"}, {5, "five"}};

void rig_init(struct rig *rig, int members)
{
    memset(rig, 0, sizeof *rig);
    memory_io_init(&rig->memory);
    witness_init(&rig->witness);
    rig->options = (struct replica_options){
        .id = 1, .address = "one", .members = all, .member_count = members};
}

void rig_open(struct rig *rig)
{
    struct replica_host host = witness_host(&rig->witness);
    struct error_text err = {""};

    rig->closed = false;
    if (replica_open(&rig->options, &rig->memory.io, &host, &rig->replica, &err) != HF_OK)
        fail_msg("replica_open: %s", err.text);
}

static bool is_busy(const struct rig *rig)
{
    const struct memory_io *memory = &rig->memory;

    return memory->sent_count > 0 || (memory->append_count > 0 && !memory->hold_appends) ||
           (memory->put_count > 0 && !memory->hold_puts) ||
           (memory->get_count > 0 && !memory->hold_gets);
}

static int64_t settle(struct rig *rig)
{
    int64_t wait;

    do {
        memory_io_settle(&rig->memory);
        wait = replica_pump(rig->replica, 0);
    } while (wait == 0 || is_busy(rig));
    return wait;
}

void rig_settle(struct rig *rig)
{
    settle(rig);
}

void rig_pass(struct rig *rig, int64_t us)
{
    int64_t end = rig->witness.now_us + us;
    int64_t tick = rig->witness.now_us + 100 * MS;

    for (;;) {
        int64_t wait = settle(rig);
        int64_t next = wait < 0 ? end : rig->witness.now_us + wait;

        next = next < tick ? next : tick;
        rig->witness.now_us = next < end ? next : end;
        if (rig->witness.now_us == tick) {
            memory_io_tick(&rig->memory, 100);
            tick += 100 * MS;
        }
        if (rig->witness.now_us == end)
            break;
    }
    settle(rig);
}

void rig_serve(struct rig *rig)
{
    rig_open(rig);
    rig->memory.peers_answer = rig->options.member_count > 1;
    rig_settle(rig);
    for (int i = 0; i < 40 && witness_role(&rig->witness) != REPLICA_LEADING; i++) {
        memory_io_tick(&rig->memory, 100);
        rig_settle(rig);
    }
    assert_int_equal(witness_role(&rig->witness), REPLICA_LEADING);
}

static void on_closed(void *context)
{
    *(bool *)context = true;
}

/* To be freed with raft_free. */
struct raft_buffer numbered_entry(size_t number, size_t commands)
{
    struct core_packer packer = {0};
    struct raft_buffer entry;

    for (size_t i = 0; i < commands; i++) {
        char name[32], lease[32];
        struct core_command command = numbered(number + i, 3600000, name, lease);

        core_pack(&packer, &command);
    }
    core_packer_finish(&packer, 0, number == 1, 7, number);
    entry.base = core_packer_take(&packer, &entry.len);
    core_packer_free(&packer);
    return entry;
}

void rig_follow(struct rig *rig, size_t number, size_t commands, raft_index commit)
{
    struct raft_buffer entry = numbered_entry(number, commands);

    memory_io_receive_entries(&rig->memory, 2, 2, number, number == 1 ? 1 : 2, commit, &entry, 1);
    raft_free(entry.base);
}

void rig_follow_many(struct rig *rig, size_t number, size_t entries, raft_index commit)
{
    struct raft_buffer *buffers = calloc(entries, sizeof *buffers);

    assert_non_null(buffers);
    for (size_t i = 0; i < entries; i++)
        buffers[i] = numbered_entry(number + i, 1);
    memory_io_receive_entries(&rig->memory, 2, 2, number, number == 1 ? 1 : 2, commit, buffers,
                              (unsigned)entries);
    for (size_t i = 0; i < entries; i++)
        raft_free(buffers[i].base);
    free(buffers);
}

void rig_close(struct rig *rig)
{
    replica_close(rig->replica, on_closed, &rig->closed);
    memory_io_settle(&rig->memory);
    assert_true(rig->closed);
    rig->replica = NULL;
}

void rig_reopen(struct rig *rig)
{
    rig_close(rig);
    memory_io_crash(&rig->memory);
    rig->witness.role_count = 0;
    rig_open(rig);
}

void rig_free(struct rig *rig)
{
    if (rig->replica)
        rig_close(rig);
    memory_io_free(&rig->memory);
}

struct core_entry_header rig_header(const struct rig *rig, raft_index index)
{
    const struct raft_entry *entry = memory_io_entry(&rig->memory, index);
    struct core_entry_header header = {0};

    assert_non_null(entry);
    assert_int_equal(entry->type, RAFT_COMMAND);
    assert_int_equal(entry->buf.len % 8, 0);
    assert_true(core_entry_header(entry->buf.base, entry->buf.len, &header));
    return header;
}

raft_index rig_last(const struct rig *rig)
{
    return memory_io_last(&rig->memory);
}
