/* disk.c: what the replica asks of the log on disk. It only takes note; disk_flush, once in a round, does it.
 *
 * All that was noted goes to the disk as one group, as far as its indexes go on: one write for all of it. */
#include "base/clock.h"
#include "node/inside.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* From here on a write takes the loop longer than a thread takes to be called. */
#define IN_THREAD_BYTES ((size_t)8192)
/* What the disk refused, and can wait, is tried again after so long. */
#define SPARE_AGAIN_US 1000000

/* ---- term and vote ---------------------------------------------------------------------------- */

int disk_store_term(void *context, uint64_t term, uint64_t vote, struct error_text *err)
{
    struct node *node = context;

    return term_store(&node->recovery.directory, &node->recovery.term, term, vote, err);
}

int disk_reset_log(void *context, struct error_text *err)
{
    struct node *node = context;

    return journal_reset(node->recovery.journal, err);
}

/* ---- segments --------------------------------------------------------------------------------- */

static void note_syncs(struct node *node)
{
    if (node->log.told_of_syncs || !journal_syncs_apart())
        return;
    node->log.told_of_syncs = true;
    node_note(node, 2,
              "this system does not know pwritev2 with RWF_DSYNC: each write to the log is "
              "followed by fdatasync, and takes longer");
}

static void make_spare(uv_work_t *work)
{
    struct node *node = work->data;

    journal_spare_make(&node->log.spare);
}

static void on_spare_made(uv_work_t *work, int status)
{
    struct node *node = work->data;
    struct log_writer *log = &node->log;

    (void)status;
    log->spare_running = false;
    log->spare_failure = log->spare.failure;
    log->spare_again_us = log->spare.failure.text[0] ? node_now_us() + SPARE_AGAIN_US : 0;
    uv_mutex_lock(&node->journal_mutex);
    journal_spare_end(node->recovery.journal, &log->spare);
    uv_mutex_unlock(&node->journal_mutex);
    note_syncs(node);
    node_maybe_finish(node);
}

static void begin_spare(struct node *node)
{
    struct log_writer *log = &node->log;
    bool wanted;

    uv_mutex_lock(&node->journal_mutex);
    wanted = !node->closing && journal_wants_spare(node->recovery.journal);
    if (wanted)
        log->spare = journal_spare_begin(node->recovery.journal);
    uv_mutex_unlock(&node->journal_mutex);
    if (!wanted)
        return;
    log->spare_failure.text[0] = '\0';
    log->spare_work.data = node;
    log->spare_running = true;
    INVARIANT(uv_queue_work(node->loop, &log->spare_work, make_spare, on_spare_made) == 0);
}

void disk_make_spare(struct node *node)
{
    const struct log_writer *log = &node->log;

    if (!log->spare_running && (log->spare_again_us == 0 || node_now_us() >= log->spare_again_us))
        begin_spare(node);
}

/* ---- removing what nobody needs --------------------------------------------------------------- */

static void trim(uv_work_t *work)
{
    struct node *node = work->data;
    struct error_text err;

    node->log.trim_result = journal_remove(&node->recovery.directory, node->log.trim_needed, &err);
}

static void begin_trim(struct node *node);

/* What could not be removed is tried again with the next snapshot. */
static void on_trimmed(uv_work_t *work, int status)
{
    struct node *node = work->data;
    struct log_writer *log = &node->log;

    (void)status;
    log->trim_running = false;
    uv_mutex_lock(&node->journal_mutex);
    if (log->trim_result == HF_OK)
        journal_removed(node->recovery.journal, log->trim_needed);
    uv_mutex_unlock(&node->journal_mutex);
    begin_trim(node);
    node_maybe_finish(node);
}

static void begin_trim(struct node *node)
{
    struct log_writer *log = &node->log;

    if (log->trim == 0 || log->trim_running || node->closing ||
        (node->snapshot.running && node->snapshot.drops_log))
        return; /* the log that is to be trimmed is about to go as a whole */
    uv_mutex_lock(&node->journal_mutex);
    log->trim_needed = journal_needed(node->recovery.journal, log->trim + 1);
    uv_mutex_unlock(&node->journal_mutex);
    log->trim = 0;
    log->trim_running = true;
    log->trim_work.data = node;
    INVARIANT(uv_queue_work(node->loop, &log->trim_work, trim, on_trimmed) == 0);
}

void disk_trim_log(void *context, uint64_t index)
{
    struct node *node = context;

    node->log.trim = index;
    begin_trim(node);
}

/* ---- appending -------------------------------------------------------------------------------- */

static void write_at_once(struct node *node);

void disk_append(void *context, uint64_t number, const struct journal_record *records, size_t count)
{
    struct node *node = context;
    struct log_writer *log = &node->log;

    for (size_t i = 0; i < count; i++) {
        log->records = node_grown(log->records, &log->record_capacity, log->record_count,
                                  sizeof *log->records);
        log->records[log->record_count++] = records[i];
    }
    log->appends =
        node_grown(log->appends, &log->append_capacity, log->append_count, sizeof *log->appends);
    log->appends[log->append_count++] = (struct noted_append){number, count};
    write_at_once(node);
}

/* Those that were noted, as far as their indexes go on. What is to be tried again is what it was. */
static void choose(struct log_writer *log)
{
    size_t appends = 0, count = 0;

    if (log->writing_count > 0)
        return;
    while (appends < log->append_count &&
           (count == 0 || log->records[count].index == log->records[count - 1].index + 1))
        count += log->appends[appends++].count;
    while (log->writing_capacity < count)
        log->writing = node_grown(log->writing, &log->writing_capacity, log->writing_capacity,
                                  sizeof *log->writing);
    memcpy(log->writing, log->records, count * sizeof *log->records);
    log->writing_count = count;
    log->writing_number = log->appends[appends - 1].number;
    log->append_count -= appends;
    log->record_count -= count;
    memmove(log->appends, log->appends + appends, log->append_count * sizeof *log->appends);
    memmove(log->records, log->records + count, log->record_count * sizeof *log->records);
}

/* Any thread's. */
static void write_records(struct node *node)
{
    struct log_writer *log = &node->log;
    int64_t begin_ns = clock_boot_ns();

    uv_mutex_lock(&node->journal_mutex);
    log->result =
        journal_append(node->recovery.journal, log->writing, log->writing_count, &log->err);
    uv_mutex_unlock(&node->journal_mutex);
    log->took_us = (uint64_t)(clock_boot_ns() - begin_ns) / 1000;
}

static void count_write(struct log_writer *log)
{
    struct node_disk_status *status = &log->status;

    status->writes++;
    status->bytes += journal_size_of(log->writing, log->writing_count);
    status->total_us += log->took_us;
    histogram_add(&status->took, (int64_t)log->took_us);
    if (log->took_us > status->longest_us)
        status->longest_us = log->took_us;
}

/* There is no segment to write to. One that was made for this write and failed is the end of it. */
static bool waits_for_segment(struct node *node)
{
    struct log_writer *log = &node->log;
    bool failed = log->waits && log->spare_failure.text[0];

    if (failed && !log->spare_running) {
        log->err = log->spare_failure;
        return false;
    }
    log->waits = true;
    if (!log->spare_running)
        begin_spare(node);
    return true;
}

/* False: it is to be tried again. */
static bool end_writing(struct node *node)
{
    struct log_writer *log = &node->log;
    bool is_written = log->result == HF_OK;

    if (log->result == HF_EBUSY && waits_for_segment(node))
        return false;
    log->waits = false;
    log->failed = !is_written;
    if (is_written)
        count_write(log);
    log->writing_count = 0;
    replica_written(node->replica, log->writing_number, is_written ? NULL : &log->err,
                    node_now_us());
    if (is_written)
        disk_make_spare(node);
    return true;
}

static void write_in_thread(uv_work_t *work)
{
    write_records(work->data);
}

static void on_written(uv_work_t *work, int status)
{
    struct node *node = work->data;

    (void)status;
    node->log.running = false;
    if (!node->closing)
        end_writing(node);
    node_maybe_finish(node);
}

static bool may_write(const struct node *node)
{
    const struct log_writer *log = &node->log;

    return (log->append_count > 0 || log->writing_count > 0) && !log->running && !log->over &&
           !log->failed && !node->closing && !(log->waits && log->spare_running);
}

static void begin_writing(struct node *node)
{
    choose(&node->log);
    node->log.err.text[0] = '\0';
}

static void begin_thread(struct node *node)
{
    struct log_writer *log = &node->log;

    log->running = true;
    log->work.data = node;
    INVARIANT(uv_queue_work(node->loop, &log->work, write_in_thread, on_written) == 0);
}

/* A leader whose followers write the same at this moment: it counts as one of the majority, and what it applies and answers in this
 * round can wait. A large write is a thread's, and both go on. The replica is in the middle of something, and hears of it by disk_flush. */
static void write_at_once(struct node *node)
{
    struct log_writer *log = &node->log;

    if (replica_role(node->replica) != REPLICA_LEADING ||
        replica_members(node->replica)->count < 2 || !may_write(node))
        return;
    begin_writing(node);
    if (journal_size_of(log->writing, log->writing_count) >= IN_THREAD_BYTES) {
        begin_thread(node);
        return;
    }
    write_records(node);
    log->over = true;
}

bool disk_flush(struct node *node)
{
    struct log_writer *log = &node->log;

    write_at_once(node);
    if (!log->over && may_write(node)) {
        begin_writing(node);
        write_records(node);
        log->over = true;
    }
    if (!log->over)
        return false;
    log->over = false;
    return end_writing(node);
}

bool disk_is_busy(const struct node *node)
{
    return node->log.running || node->log.spare_running || node->log.trim_running;
}

void node_disk_status(const struct node *node, struct node_disk_status *ret_status)
{
    *ret_status = node->log.status;
}
