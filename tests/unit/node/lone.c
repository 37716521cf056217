#include "lone.h"

#include "journal/snapshot_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <unistd.h>

#define TTL_MS 3600000
#define ROUNDS_MAX 100000

/* ---- what its replica asks for ---------------------------------------------------------------- */

static int on_store_term(void *context, uint64_t term, uint64_t vote, struct error_text *err)
{
    struct lone *lone = context;

    return term_store(&lone->recovery.directory, &lone->recovery.term, term, vote, err);
}

static void on_append(void *context, uint64_t number, const struct journal_record *records,
                      size_t count)
{
    struct lone *lone = context;
    struct journal *journal = lone->recovery.journal;
    struct error_text err = {""};
    int result = journal_append(journal, records, count, &err);

    if (result == HF_EBUSY) {
        struct journal_spare spare = journal_spare_begin(journal);

        journal_spare_make(&spare);
        journal_spare_end(journal, &spare);
        result = journal_append(journal, records, count, &err);
    }
    if (result != HF_OK)
        fail_msg("cannot append: %s", err.text);
    lone->written = number;
}

static void on_send(void *context, uint64_t to, const char *address, const struct iovec *pieces,
                    unsigned count)
{
    (void)context;
    (void)to;
    (void)address;
    (void)pieces;
    (void)count;
}

static int on_reset_log(void *context, struct error_text *err)
{
    struct lone *lone = context;

    return journal_reset(lone->recovery.journal, err);
}

static void on_store_snapshot(void *context, const struct replica_snapshot *snapshot, bool installs,
                              bool keeps_log)
{
    struct lone *lone = context;
    struct error_text err = {""};

    if (recovery_store_snapshot(&lone->recovery, snapshot, installs && !keeps_log, &err) != HF_OK)
        fail_msg("cannot store a snapshot: %s", err.text);
    lone->snapshot_stored = true;
}

static void on_trim_log(void *context, uint64_t index)
{
    struct lone *lone = context;
    struct journal *journal = lone->recovery.journal;
    uint64_t needed = journal_needed(journal, index + 1);
    struct error_text err;

    assert_int_equal(journal_remove(&lone->recovery.directory, needed, &err), HF_OK);
    journal_removed(journal, needed);
}

/* ---- what it says ----------------------------------------------------------------------------- */

static void on_effect(void *context, void *request, const struct core_effect *effect)
{
    struct lone *lone = context;

    if (!request || effect->kind != EFFECT_ANSWER)
        return;
    lone->answers++;
    lone->token = effect->number;
}

static void on_failed(void *context, void *request, enum replica_failure failure)
{
    (void)context;
    (void)request;
    (void)failure;
}

static void on_changed(void *context, void *request, enum replica_change result)
{
    (void)context;
    (void)request;
    (void)result;
}

static void on_role(void *context, enum replica_role role)
{
    ((struct lone *)context)->role = role;
}

static void on_stopped(void *context, const char *why)
{
    struct lone *lone = context;

    snprintf(lone->stopped, sizeof lone->stopped, "%s", why);
}

static void on_members(void *context)
{
    (void)context;
}

static void on_note(void *context, int level, const char *text)
{
    (void)context;
    (void)level;
    (void)text;
}

/* ---- its life --------------------------------------------------------------------------------- */

void lone_init(struct lone *lone)
{
    const char *below = getenv("HOLDFAST_TEST_DIR");

    memset(lone, 0, sizeof *lone);
    snprintf(lone->home, sizeof lone->home, "%s/node-XXXXXX", below ? below : "/var/tmp");
    assert_non_null(mkdtemp(lone->home));
    snprintf(lone->path, sizeof lone->path, "%s/data", lone->home);
    lone->options = (struct replica_options){.id = 1, .incarnation = 7, .seed = 3};
    lone->now_us = 1000000;
}

void lone_free(struct lone *lone)
{
    if (lone->recovery.open)
        lone_crash(lone);
    remove_directory(lone->home);
}

int lone_load(struct lone *lone, struct error_text *err)
{
    const struct replica_io io = {.context = lone,
                                  .store_term = on_store_term,
                                  .append = on_append,
                                  .send = on_send,
                                  .reset_log = on_reset_log,
                                  .store_snapshot = on_store_snapshot,
                                  .trim_log = on_trim_log};
    const struct replica_host host = {.context = lone,
                                      .effect = on_effect,
                                      .failed = on_failed,
                                      .changed = on_changed,
                                      .role = on_role,
                                      .stopped = on_stopped,
                                      .members = on_members,
                                      .note = on_note};
    int result = recovery_open(&lone->recovery, disk_system(), lone->path, err);

    lone->written = 0;
    lone->snapshot_stored = false;
    lone->role = 0;
    if (result == HF_OK)
        result = recovery_load(&lone->recovery, lone->segment_bytes, &lone->options, &io, &host,
                               lone->now_us, &lone->replica, err);
    if (result != HF_OK)
        recovery_close(&lone->recovery);
    return result;
}

int lone_begin(struct lone *lone, struct error_text *err)
{
    const struct replica_config itself = {
        .count = 1,
        .at = {{.id = lone->options.id, .incarnation = lone->options.incarnation, .votes = true}}};
    int result = recovery_begin(&lone->recovery, lone->replica, lone->now_us, err);

    if (result == HF_OK && !replica_cluster(lone->replica))
        result = replica_found(lone->replica, &itself, lone->now_us, err);
    if (result != HF_OK)
        lone_crash(lone);
    return result;
}

void lone_settle(struct lone *lone)
{
    for (int round = 0; round < ROUNDS_MAX; round++) {
        int64_t next_us = replica_pump(lone->replica, 0, lone->now_us);
        uint64_t written = lone->written;

        assert_string_equal(lone->stopped, "");
        lone->written = 0;
        if (written)
            replica_written(lone->replica, written, NULL, lone->now_us);
        if (lone->snapshot_stored) {
            lone->snapshot_stored = false;
            replica_snapshot_stored(lone->replica, NULL, lone->now_us);
        } else if (!written && next_us > lone->now_us) {
            return;
        }
    }
    fail_msg("it never comes to an end");
}

void lone_serve(struct lone *lone)
{
    struct error_text err = {""};

    if (lone_load(lone, &err) != HF_OK || lone_begin(lone, &err) != HF_OK)
        fail_msg("cannot start: %s", err.text);
    for (int i = 0; i < 100 && lone->role != REPLICA_LEADING; i++) {
        lone->now_us += 100000;
        lone_settle(lone);
    }
    assert_int_equal(lone->role, REPLICA_LEADING);
}

static void close_all(struct lone *lone)
{
    if (lone->replica)
        replica_free(lone->replica);
    lone->replica = NULL;
    recovery_close(&lone->recovery);
}

void lone_close(struct lone *lone)
{
    struct error_text err;

    assert_int_equal(journal_stop(lone->recovery.journal, &err), HF_OK);
    close_all(lone);
}

void lone_crash(struct lone *lone)
{
    close_all(lone);
}

/* ---- what it is asked for --------------------------------------------------------------------- */

void lone_hold_many(struct lone *lone, unsigned number, unsigned count)
{
    unsigned before = lone->answers;

    for (unsigned i = 0; i < count; i++) {
        char name[32], lease[33];
        struct core_command command = {
            .op = CORE_ACQUIRE, .mode = HF_EXCLUSIVE, .ttl_ms = TTL_MS, .name.bytes = name};

        command.name.size = (size_t)snprintf(name, sizeof name, "name-%u", number + i);
        command.lease.bytes = lease;
        command.lease.size = (size_t)snprintf(lease, sizeof lease, "%032u", number + i);
        assert_int_equal(replica_submit(lone->replica, &command, lone, lone->now_us), HF_OK);
    }
    lone_settle(lone);
    for (int i = 0; i < 100 && lone->answers < before + count; i++) {
        lone->now_us += 1000; /* a batch may wait for more */
        lone_settle(lone);
    }
    assert_int_equal(lone->answers, before + count);
}

void lone_hold(struct lone *lone, unsigned number)
{
    lone_hold_many(lone, number, 1);
}

struct core_counts lone_counts(const struct lone *lone)
{
    struct core_counts counts;

    core_count(replica_table(lone->replica), &counts);
    return counts;
}

/* ---- files ------------------------------------------------------------------------------------ */

bool lone_find_file(const struct lone *lone, const char *begins, char ret_path[2 * PATH_MAX])
{
    struct dirent **names;
    int count = scandir(lone->path, &names, NULL, alphasort);
    bool found = false;

    assert_true(count >= 0);
    for (int i = 0; i < count; i++) {
        if (strncmp(names[i]->d_name, begins, strlen(begins)) == 0) {
            snprintf(ret_path, 2 * PATH_MAX, "%s/%s", lone->path, names[i]->d_name);
            found = true;
        }
        free(names[i]);
    }
    free(names);
    return found;
}

void flip_byte(const char *path, long offset)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    unsigned char byte;

    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, offset), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, offset), 1);
    close(fd);
}

bool has_file(const char *directory, const char *name)
{
    char path[2 * PATH_MAX];

    snprintf(path, sizeof path, "%s/%s", directory, name);
    return access(path, F_OK) == 0;
}

void put_file(const char *directory, const char *name, const char *text)
{
    char path[2 * PATH_MAX];
    int fd;

    snprintf(path, sizeof path, "%s/%s", directory, name);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static uint64_t mix(uint64_t sum, uint64_t value)
{
    return (sum ^ value) * UINT64_C(1099511628211);
}

static uint64_t sum_of_file(const char *path, uint64_t sum)
{
    static uint64_t words[8192];
    FILE *file = fopen(path, "rb");
    size_t got;

    assert_non_null(file);
    while (memset(words, 0, sizeof words), (got = fread(words, 1, sizeof words, file)) > 0)
        for (size_t i = 0; i < (got + 7) / 8; i++)
            sum = mix(sum, words[i]);
    fclose(file);
    return sum;
}

uint64_t sum_of_directory(const char *directory)
{
    struct dirent **names;
    int count = scandir(directory, &names, NULL, alphasort);
    uint64_t sum = UINT64_C(14695981039346656037);

    for (int i = 0; i < count; i++) {
        char path[2 * PATH_MAX];

        snprintf(path, sizeof path, "%s/%s", directory, names[i]->d_name);
        if (names[i]->d_name[0] != '.' && strcmp(names[i]->d_name, DIRECTORY_LOCK) != 0) {
            for (const char *at = names[i]->d_name; *at; at++)
                sum = mix(sum, (uint64_t)*at);
            sum = sum_of_file(path, sum);
        }
        free(names[i]);
    }
    free(names);
    return sum;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info;
    (void)kind;
    (void)where;
    return remove(path);
}

void remove_directory(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
