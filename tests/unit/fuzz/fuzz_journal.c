/* fuzz_journal.c: a log that was written as it should be, and then changed on its disk. The input says what was appended in which groups
 * and segments, whether the journal was stopped, and then which bytes are others. It goes one of two ways:
 *
 *     damage    at most three bytes are changed, which no checksum overlooks. It is refused, or what is in effect is what was in effect
 *               when it was written; but of the last append, if it was not stopped after that, only the first records may be there, and
 *               the oldest segments may be missing: whoever knows the snapshot, and so where the log must begin, sees that
 *     hostile   any bytes are changed, and then the checksums are put right. It is refused in words, or goes on: the same is read again
 *               after it was begun, and an append after that is there at the next start */
#include "base/crc32c.h"
#include "journal/inside.h"
#include "room.h"

#include <inttypes.h>

#define SEGMENT_BYTES (6 * BLOCK)
#define RECORDS_MAX 24
#define CHANGED_MAX 3 /* bytes, in the first way */
#define SEGMENTS_MAX 8u

#define HOSTILE 1u /* of the first byte */
#define STOPPED 2u
#define AT_RECORD 4u /* changes are of records, from their headers on; else of all of a segment */

struct record { /* without holes: compared as bytes */
    uint64_t index, term, type, size, sum;
};

struct log {
    struct record records[4 * RECORDS_MAX];
    size_t count;
    size_t groups[RECORDS_MAX + 1]; /* how many records there are after each append */
    size_t group_count;
};

static int note(void *context, const struct journal_record *record, struct error_text *err)
{
    struct log *log = context;

    (void)err;
    REQUIRE(record->index > 0 && record->size <= JOURNAL_RECORD_MAX);
    if (log->count < COUNT(log->records))
        log->records[log->count++] =
            (struct record){record->index, record->term, record->type, record->size,
                            crc32c(0, record->bytes, record->size)};
    return HF_OK;
}

static bool starts_with(const struct log *log, const struct log *beginning)
{
    return beginning->count <= log->count &&
           (beginning->count == 0 ||
            memcmp(log->records, beginning->records, beginning->count * sizeof *log->records) == 0);
}

/* ---- writing ----------------------------------------------------------------------------------- */

static void make_spare(struct journal *journal)
{
    struct journal_spare spare;

    if (!journal_wants_spare(journal))
        return;
    spare = journal_spare_begin(journal);
    journal_spare_make(&spare);
    journal_spare_end(journal, &spare);
}

static void append(struct journal *journal, const struct journal_record *records, size_t count,
                   struct log *log)
{
    struct error_text err = {""};
    int result;

    make_spare(journal);
    result = journal_append(journal, records, count, &err);
    if (result == HF_EBUSY) {
        make_spare(journal);
        result = journal_append(journal, records, count, &err);
    }
    if (result != HF_OK)
        fuzz_failed(__FILE__, __LINE__, "a journal takes no more:", err.text);
    for (size_t i = 0; i < count; i++)
        note(log, &records[i], NULL);
    log->groups[++log->group_count] = log->count;
}

/* Groups of records; now and then one begins again further back, as a follower's log does. */
static void write_log(struct room *room, struct fuzz_input *input, bool stopped, struct log *log)
{
    static uint8_t bytes[6000];
    struct journal_record group[4];
    struct journal *journal;
    unsigned appends = 1 + fuzz_byte(input) % 6;
    uint64_t next = 1;

    REQUIRE(journal_open(&room->directory, SEGMENT_BYTES, note, log, &journal, NULL) == HF_OK);
    REQUIRE(journal_begin(journal, NULL) == HF_OK);
    for (unsigned i = 0; i < appends; i++) {
        unsigned how = fuzz_byte(input), count = 1 + how % 4, back = how / 4 % 4;

        next -= back < next ? back : 0;
        for (unsigned k = 0; k < count; k++) {
            unsigned size = fuzz_byte(input);

            memset(bytes, (int)(i + 1), sizeof bytes);
            group[k] = (struct journal_record){.index = next,
                                               .term = 1 + i,
                                               .chain = size,
                                               .commit = next / 2,
                                               .type = 1,
                                               .bytes = bytes,
                                               .size = size * size / 11};
            next++;
        }
        append(journal, group, count, log);
    }
    if (stopped)
        REQUIRE(journal_stop(journal, NULL) == HF_OK);
    journal_close(journal);
}

/* ---- changing ---------------------------------------------------------------------------------- */

static uint8_t segment[1 << 20];

/* The nth record from the beginning of a segment that was written as it should be; else its last. */
static size_t record_at(size_t size, unsigned n)
{
    size_t at = BLOCK, found = BLOCK;

    while (at + RECORD_HEADER <= size && get_u64(segment + at + 8) > 0 && n-- > 0) {
        size_t next = at + round_up(RECORD_HEADER + get_u32(segment + at + 4), RECORD_STEP);

        found = at;
        at = get_u32(segment + at + 56) == 0 ? round_up(next, BLOCK) : next;
    }
    return found;
}

static void mend_segment(size_t size)
{
    put_u32(segment + SEGMENT_SUMMED, crc32c(0, segment, SEGMENT_SUMMED));
    put_u32(segment + SALT_AT + SALT_SUMMED, crc32c(0, segment + SALT_AT, SALT_SUMMED));
    for (size_t at = BLOCK; at + RECORD_HEADER <= size && get_u64(segment + at + 8) > 0;) {
        size_t length = get_u32(segment + at + 4), next;

        if (length > size - at - RECORD_HEADER)
            return;
        put_u32(segment + at + 60, segment[at + 60] | header_checksum(segment + at) << 8);
        put_u32(segment + at, crc32c(0, segment + at + 4, RECORD_HEADER - 4 + length));
        next = at + round_up(RECORD_HEADER + length, RECORD_STEP);
        at = get_u32(segment + at + 56) == 0 ? round_up(next, BLOCK) : next;
    }
}

/* Which segment; then places and bytes, until the input ends. */
static void change(struct room *room, struct fuzz_input *input, unsigned how)
{
    char name[SEGMENT_NAME_SIZE];
    bool changed = false;
    size_t size;

    segment_name(1 + fuzz_byte(input) % SEGMENTS_MAX, name);
    size = room_get(room, name, segment, sizeof segment);
    if (size < BLOCK)
        return;
    for (unsigned i = 0; input->left > 0 && (how & HOSTILE || i < CHANGED_MAX); i++) {
        size_t at = how & AT_RECORD ? record_at(size, 1 + fuzz_byte(input)) + fuzz_byte(input) % 72
                                    : fuzz_number(input, 2) % size;
        uint8_t byte = (uint8_t)fuzz_byte(input);

        if (at >= size)
            continue;
        changed = changed || byte != 0;
        segment[at] ^= byte;
    }
    if (how & HOSTILE)
        mend_segment(size);
    if (changed)
        room_put(room, name, segment, size);
}

/* The mark is of the last record, whatever it is now. */
static void change_mark(struct room *room, struct fuzz_input *input)
{
    unsigned how = fuzz_byte(input);
    struct end end;

    if (how & 1 || end_load(&room->directory, &end, NULL) != HF_OK || !end.known)
        return;
    if (how & 2)
        end.open = !end.open;
    end.group += how / 4 % 4 == 3;
    end.index += how / 16 % 4 == 3;
    if (how & 64)
        end.segment += how & 128 ? 1 : UINT64_MAX;
    REQUIRE(end_store(&room->directory, &end, NULL) == HF_OK);
}

/* ---- reading ----------------------------------------------------------------------------------- */

static struct log expected, found, again;

static struct journal *open_journal(struct room *room, struct log *log)
{
    struct error_text err = {""};
    struct journal *journal = NULL;
    int result;

    log->count = log->group_count = 0;
    result = journal_open(&room->directory, SEGMENT_BYTES, note, log, &journal, &err);
    REQUIRE(result == HF_OK || (result == HF_EIO && err.text[0]));
    return result == HF_OK ? journal : NULL;
}

/* [J4] Of the first so many records. */
static size_t in_effect(const struct log *log, size_t count, struct record *ret_records)
{
    size_t used = 0;

    for (size_t i = 0; i < count; i++) {
        while (used > 0 && ret_records[used - 1].index >= log->records[i].index)
            used--;
        ret_records[used++] = log->records[i];
    }
    return used;
}

static bool all_is_there(bool stopped)
{
    static struct record is[COUNT(found.records)], was[COUNT(found.records)];
    size_t count = in_effect(&found, found.count, is), last = expected.group_count - 1;

    for (size_t n = expected.count; n >= (stopped ? expected.count : expected.groups[last]); n--) {
        size_t before = in_effect(&expected, n, was);

        if (before >= count && memcmp(is, was + (before - count), count * sizeof *is) == 0)
            return true;
        if (n == 0)
            break;
    }
    return false;
}

static void go_on_with(struct room *room, struct journal *journal)
{
    struct journal_record next = {.index = 1, .term = 9, .type = 1, .bytes = "more", .size = 4};
    struct error_text err = {""};
    int result = journal_begin(journal, &err);

    REQUIRE(result == HF_OK || err.text[0]);
    if (found.count > 0)
        next.index = found.records[found.count - 1].index + 1;
    if (result == HF_OK && next.index > 0)
        append(journal, &next, 1, &found);
    journal_close(journal);
    if (result != HF_OK || found.count == COUNT(found.records))
        return;
    journal = open_journal(room, &again);
    REQUIRE(journal && again.count == found.count && starts_with(&again, &found));
    result = journal_read_range(journal, next.index, next.index, 1 << 20, note, &again, &err);
    REQUIRE(next.index == 0 || (result == HF_OK && again.count == found.count + 1));
    journal_close(journal);
}

const int fuzz_rounds = 1500;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    unsigned how = fuzz_byte(&input);
    struct journal *journal;
    struct room room;

    memset(&expected, 0, sizeof expected);
    room_begin(&room);
    write_log(&room, &input, how & STOPPED, &expected);
    if (how & HOSTILE)
        change_mark(&room, &input);
    change(&room, &input, how);
    journal = open_journal(&room, &found);
    if (journal && !(how & HOSTILE))
        REQUIRE(all_is_there(how & STOPPED));
    if (journal)
        go_on_with(&room, journal);
    room_end(&room);
    return 0;
}

size_t fuzz_seed(unsigned n, uint8_t ret_bytes[FUZZ_MAX])
{
    if (n >= 16)
        return 0;
    ret_bytes[0] = (uint8_t)(n % 8);
    for (size_t i = 1; i < 40; i++)
        ret_bytes[i] = (uint8_t)(i * (17 + n * 6));
    return n < 8 ? 24 : 40;
}
