#include "life.h"

#include <sys/uio.h>

#define BLOCK_BYTES ((size_t)4096)
#define SNAPSHOT_BYTES 5000
#define ENTRY_BYTES_MAX 20000

uint64_t life_draw(uint64_t *seed, uint64_t limit)
{
    uint64_t mixed = *seed += UINT64_C(0x9e3779b97f4a7c15);

    mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
    return (mixed ^ mixed >> 31) % limit;
}

uint64_t life_count(uint64_t count)
{
    const char *soak = getenv("HF_SOAK");

    return soak && strcmp(soak, "1") == 0 ? 50 * count : count;
}

/* The disk in memory, or this machine's. */
static const struct disk *disk_of(const struct life *life)
{
    if (life->table)
        return life->table;
    return life->disk ? sim_disk_table(life->disk) : disk_system();
}

static bool has_stopped(const struct life *life)
{
    return life->disk && sim_disk_stopped(life->disk);
}

/* ---- entries ---------------------------------------------------------------------------------- */

/* Some are zeros, as far as a sector: that is what was never written, too. */
static void fill(unsigned char *bytes, uint64_t index, const struct entry *entry)
{
    uint64_t seed = index * UINT64_C(0x9e3779b97f4a7c15) + entry->term;

    for (size_t i = 0; i < entry->size; i++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        bytes[i] = entry->type % 8 == 1 && i > 100 && i < 1800 ? 0 : (unsigned char)(seed >> 56);
    }
}

struct journal_record life_record(uint64_t index, const struct entry *entry, unsigned char *bytes)
{
    fill(bytes, index, entry);
    return (struct journal_record){.index = index,
                                   .term = entry->term,
                                   .chain = index * 31 + entry->term * 17,
                                   .commit = index / 2,
                                   .type = entry->type,
                                   .bytes = bytes,
                                   .size = entry->size};
}

bool life_is_record(const struct journal_record *record, const struct entry *entry)
{
    static unsigned char bytes[ENTRY_BYTES_MAX];
    struct journal_record right = life_record(record->index, entry, bytes);

    return record->term == right.term && record->chain == right.chain &&
           record->commit == right.commit && record->type == right.type &&
           record->size == right.size && memcmp(record->bytes, right.bytes, right.size) == 0;
}

static struct entry random_entry(struct life *life, bool large)
{
    struct entry entry = {.term = life->stamp, .type = (uint8_t)life_draw(&life->seed, 256)};

    switch (large ? 9 : life_draw(&life->seed, 6)) {
    case 0:
        entry.size = 0;
        break;
    case 1:
        entry.size = (uint32_t)life_draw(&life->seed, 6000);
        break;
    case 9:
        entry.size = 12000 + (uint32_t)life_draw(&life->seed, 7000);
        break;
    default:
        entry.size = (uint32_t)life_draw(&life->seed, 700);
    }
    return entry;
}

/* ---- the model -------------------------------------------------------------------------------- */

static void model_clear(struct model *model, uint64_t index)
{
    model->base = model->first = model->next = model->kept = index;
}

static void model_put(struct model *model, uint64_t index, const struct entry *entry)
{
    assert_true(index >= model->base && index - model->base < LIFE_INDEXES);
    model->log[index - model->base] = *entry;
    model->next = index + 1;
    if (index < model->first)
        model->first = index;
}

static bool same_log(const struct model *seen, const struct model *model)
{
    if (model->first == model->next || seen->first == seen->next)
        return (model->first == model->next) == (seen->first == seen->next);
    if (seen->next != model->next || seen->first > model->kept || seen->first < model->first)
        return false;
    for (uint64_t i = seen->first; i < seen->next; i++) {
        const struct entry *a = &seen->log[i - seen->base], *b = &model->log[i - model->base];

        if (a->term != b->term || a->size != b->size || a->type != b->type)
            return false;
    }
    return true;
}

bool life_has_seen(const struct life *life, const struct model *model)
{
    const struct model *seen = &life->seen;

    return same_log(seen, model) && seen->term == model->term && seen->vote == model->vote &&
           seen->snapshot == model->snapshot;
}

/* ---- opening ---------------------------------------------------------------------------------- */

static struct snapshot_file snapshot_of(uint64_t index, unsigned char bytes[SNAPSHOT_BYTES])
{
    struct entry entry = {.term = index, .size = SNAPSHOT_BYTES};

    fill(bytes, index, &entry);
    return (struct snapshot_file){.index = index,
                                  .term = index + 1,
                                  .configuration_index = index,
                                  .configuration = {bytes, 77},
                                  .data = {bytes, SNAPSHOT_BYTES - index % 100}};
}

static int see_record(void *context, const struct journal_record *record, struct error_text *err)
{
    struct life *life = context;
    struct entry entry = {record->term, (uint32_t)record->size, record->type};

    if (record->index < life->acked.base || record->index - life->acked.base >= LIFE_INDEXES)
        return error_set(err, HF_EINTERNAL, "%s: nobody wrote entry %ju", life->where,
                         (uintmax_t)record->index);
    if (record->size > ENTRY_BYTES_MAX || !life_is_record(record, &entry))
        return error_set(err, HF_EINTERNAL, "%s: entry %ju is not what was written", life->where,
                         (uintmax_t)record->index);
    if (life->seen.first == life->seen.next)
        life->seen.first = record->index;
    model_put(&life->seen, record->index, &entry);
    return HF_OK;
}

static int see_snapshot(struct life *life, struct error_text *err)
{
    unsigned char bytes[SNAPSHOT_BYTES];
    struct snapshot_file snapshot, right;
    int result = snapshot_file_load(&life->directory, &snapshot, err);

    if (result != HF_OK)
        return result;
    right = snapshot_of(snapshot.index, bytes);
    if (snapshot.index > 0 &&
        (snapshot.term != right.term || snapshot.data.iov_len != right.data.iov_len ||
         memcmp(snapshot.data.iov_base, right.data.iov_base, right.data.iov_len) != 0))
        result = error_set(err, HF_EINTERNAL, "%s: snapshot %ju is not what was written",
                           life->where, (uintmax_t)snapshot.index);
    life->seen.snapshot = snapshot.index;
    if (result == HF_OK)
        result = snapshot_file_clean(&life->directory, &snapshot, err);
    snapshot_file_free(&snapshot);
    return result;
}

int life_open(struct life *life, struct error_text *err)
{
    int result = directory_open_on(disk_of(life), life->path, &life->directory, err);

    memset(&life->seen, 0, sizeof life->seen);
    model_clear(&life->seen, life->acked.base);
    life->entered = result == HF_OK;
    if (result == HF_OK)
        result = term_load(&life->directory, &life->term, err);
    if (result != HF_OK)
        return result;
    life->seen.term = life->term.number;
    life->seen.vote = life->term.vote;
    result = see_snapshot(life, err);
    if (result == HF_OK)
        result = journal_open(&life->directory, life->segment_bytes, see_record, life,
                              &life->journal, err);
    return result;
}

void life_close(struct life *life)
{
    if (life->journal)
        journal_close(life->journal);
    life->journal = NULL;
    if (life->entered)
        directory_close(&life->directory);
    life->entered = false;
}

/* One of those that may be there. What was seen is what counts from now on. */
static void settle(struct life *life)
{
    const struct model *found = life_has_seen(life, &life->acked) ? &life->acked : NULL;
    uint64_t first = life->seen.first;

    for (size_t i = 0; i < life->maybe_count && !found; i++)
        if (life_has_seen(life, &life->maybe[i]))
            found = &life->maybe[i];
    if (!found) {
        fail_msg(
            "%s: entries %ju to %ju, term %ju, snapshot %ju, and not %ju (%ju) to %ju, %ju, %ju "
            "or one of %zu others",
            life->where, (uintmax_t)first, (uintmax_t)life->seen.next, (uintmax_t)life->seen.term,
            (uintmax_t)life->seen.snapshot, (uintmax_t)life->acked.first,
            (uintmax_t)life->acked.kept, (uintmax_t)life->acked.next, (uintmax_t)life->acked.term,
            (uintmax_t)life->acked.snapshot, life->maybe_count);
        return;
    }
    if (found != &life->acked)
        life->acked = *found;
    if (life->acked.first != life->acked.next)
        life->acked.first = first;
    life->maybe_count = 0;
}

bool life_recover(struct life *life)
{
    int result = life_open(life, &life->err);

    if (result == HF_OK)
        result = journal_begin(life->journal, &life->err);
    life->result = result;
    if (result == HF_OK) {
        settle(life);
        return true;
    }
    if (!has_stopped(life) && !life->may_fail)
        fail_msg("%s: refused with %d: %s", life->where, result, life->err.text);
    return false;
}

void life_crash(struct life *life)
{
    life_close(life);
    sim_disk_crash(life->disk);
    life->crashes++;
}

/* ---- steps ------------------------------------------------------------------------------------ */

static bool succeeds(struct life *life, int result)
{
    life->result = result;
    return result == HF_OK;
}

static bool make_spare(struct life *life)
{
    struct journal_spare spare;

    if (!journal_wants_spare(life->journal))
        return true;
    spare = journal_spare_begin(life->journal);
    journal_spare_make(&spare);
    journal_spare_end(life->journal, &spare);
    life->err = spare.failure;
    return succeeds(life, spare.failure.text[0] ? HF_EIO : HF_OK);
}

static struct model *new_candidate(struct life *life)
{
    struct model *model = &life->maybe[life->maybe_count++];

    *model = life->maybe_count > 1 ? life->maybe[life->maybe_count - 2] : life->acked;
    return model;
}

static bool append(struct life *life, uint64_t first, bool large)
{
    static unsigned char bytes[LIFE_GROUP_MAX][ENTRY_BYTES_MAX];
    struct journal_record records[LIFE_GROUP_MAX];
    size_t count = large ? 1 : 1 + life_draw(&life->seed, LIFE_GROUP_MAX);
    int result;

    life->stamp++;
    for (size_t i = 0; i < count; i++) {
        struct entry entry = random_entry(life, large);

        records[i] = life_record(first + i, &entry, bytes[i]);
        model_put(new_candidate(life), first + i, &entry);
    }
    result = journal_append(life->journal, records, count, &life->err);
    if (result == HF_EBUSY) {
        if (!make_spare(life))
            return false;
        result = journal_append(life->journal, records, count, &life->err);
    }
    if (result == HF_OK)
        life->acked = life->maybe[life->maybe_count - 1];
    return succeeds(life, result);
}

static bool replace(struct life *life)
{
    uint64_t back = life->acked.next - life->acked.kept;

    return append(life, life->acked.next - (back > 1 ? life_draw(&life->seed, back) : 0), false);
}

static bool remove_some(struct life *life)
{
    struct model *model = new_candidate(life);
    uint64_t needed;

    if (model->next == model->first)
        return true;
    model->kept += life_draw(&life->seed, model->next - model->kept);
    needed = journal_needed(life->journal, model->kept);
    if (!succeeds(life, journal_remove(&life->directory, needed, &life->err)))
        return false;
    journal_removed(life->journal, needed);
    life->acked = *model;
    return true;
}

static bool reset(struct life *life)
{
    struct model *model = new_candidate(life);

    model->first = model->kept = model->next;
    if (!succeeds(life, journal_reset(life->journal, &life->err)))
        return false;
    life->acked = *model;
    model_clear(&life->acked, life->acked.next + life_draw(&life->seed, 5));
    return true;
}

static bool store_term(struct life *life)
{
    struct model *model = new_candidate(life);

    model->vote = life_draw(&life->seed, 5);
    model->term += 1 + life_draw(&life->seed, 3);
    if (!succeeds(life,
                  term_store(&life->directory, &life->term, model->term, model->vote, &life->err)))
        return false;
    life->acked = *model;
    return true;
}

static bool write_snapshot(struct life *life)
{
    unsigned char bytes[SNAPSHOT_BYTES];
    struct model *model = new_candidate(life);
    struct snapshot_file snapshot;

    model->snapshot += 1 + life_draw(&life->seed, 9);
    snapshot = snapshot_of(model->snapshot, bytes);
    if (!succeeds(life, snapshot_file_write(&life->directory, &snapshot, &life->err)))
        return false;
    life->acked = *model;
    return true;
}

static bool restart(struct life *life, bool stop)
{

    if (stop && !succeeds(life, journal_stop(life->journal, &life->err)))
        return false;
    life_close(life);
    return life_recover(life);
}

static bool take(struct life *life, enum life_step step)
{
    switch (step) {
    case LIFE_APPEND:
        return append(life, life->acked.next, false);
    case LIFE_LARGE:
        return append(life, life->acked.next, true);
    case LIFE_REPLACE:
        return replace(life);
    case LIFE_SPARE:
        return make_spare(life);
    case LIFE_REMOVE:
        return remove_some(life);
    case LIFE_RESET:
        return reset(life);
    case LIFE_TERM:
        return store_term(life);
    case LIFE_SNAPSHOT:
        return write_snapshot(life);
    case LIFE_STOP:
        return restart(life, true);
    case LIFE_REOPEN:
        return restart(life, false);
    default:
        fail_msg("no such step: %d", (int)step);
        return false;
    }
}

bool life_step(struct life *life, enum life_step step)
{
    bool done;

    if (life->acked.next - life->acked.base > LIFE_INDEXES - 2 * LIFE_GROUP_MAX)
        step = LIFE_RESET;
    life->maybe_count = 0;
    done = take(life, step);
    life->tried = life->maybe_count;
    if (done)
        life->maybe_count = 0;
    else if (!has_stopped(life) && !life->may_fail)
        fail_msg("%s: step %d failed", life->where, (int)step);
    return done;
}

/* ---- reading while it is open ----------------------------------------------------------------- */

struct reader {
    const struct life *life;
    uint64_t next, to;
    size_t bytes;
    int count;
};

static int check_one(void *context, const struct journal_record *record, struct error_text *err)
{
    struct reader *reader = context;
    const struct model *model = &reader->life->acked;

    if (record->index != reader->next || record->index > reader->to ||
        record->index < model->base || record->index >= model->next ||
        !life_is_record(record, &model->log[record->index - model->base]))
        return error_set(err, HF_EINTERNAL, "entry %ju is not %ju as it was written",
                         (uintmax_t)record->index, (uintmax_t)reader->next);
    reader->next++;
    reader->bytes += JOURNAL_RECORD_HEADER + record->size;
    reader->count++;
    return HF_OK;
}

int life_read_range(struct life *life, uint64_t from, uint64_t to, size_t bytes_max)
{
    const struct model *model = &life->acked;
    uint64_t end = to < model->next ? to + 1 : model->next;
    struct reader reader = {.life = life, .next = from, .to = to};
    struct error_text err = {""};
    int result = journal_read_range(life->journal, from, to, bytes_max, check_one, &reader, &err);
    bool all = reader.next >= end;

    if (result == JOURNAL_GONE && from < model->kept && reader.count == 0)
        return -1;
    if (result == JOURNAL_GONE && model->first == model->next)
        return -1;
    if (result != HF_OK || from < model->first || (from < end && reader.count == 0))
        fail_msg("%s: entries %ju to %ju: %d, %s", life->where, (uintmax_t)from, (uintmax_t)to,
                 result, err.text);
    if (reader.count > 1 && reader.bytes > bytes_max)
        fail_msg("%s: %zu bytes and not %zu", life->where, reader.bytes, bytes_max);
    if (!all && bytes_max > reader.bytes &&
        bytes_max - reader.bytes >=
            JOURNAL_RECORD_HEADER + model->log[reader.next - model->base].size)
        fail_msg("%s: entry %ju would have had room", life->where, (uintmax_t)reader.next);
    return reader.count;
}

void life_read_some(struct life *life)
{
    const struct model *model = &life->acked;
    uint64_t from = model->base + life_draw(&life->seed, model->next - model->base + 3);
    uint64_t to = from + life_draw(&life->seed, model->next - model->base + 3);

    life_read_range(life, from, to, life_draw(&life->seed, 2) ? life_draw(&life->seed, 9000) : 0);
    life_read_range(life, from, to, SIZE_MAX);
}

void life_begin(struct life *life, uint64_t seed)
{
    life_begin_at(life, seed, LIFE_PATH);
    life->disk = sim_disk_new(seed);
}

void life_begin_at(struct life *life, uint64_t seed, const char *path)
{
    memset(life, 0, sizeof *life);
    life->start = life->seed = seed;
    life->path = path;
    life->segment_bytes = (3 + life_draw(&life->seed, 4)) * BLOCK_BYTES;
    model_clear(&life->acked, 1);
    snprintf(life->where, sizeof life->where, "seed %ju", (uintmax_t)seed);
}

void life_end(struct life *life)
{
    life_close(life);
    if (life->disk)
        sim_disk_free(life->disk);
}
