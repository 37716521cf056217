/* fuzz_start.c: the small files that a node reads when it starts: whose the directory is, the term and the vote, how far the log goes, a
 * note, a snapshot. The input's first byte says which of them the rest is; unless it says otherwise, the checksums are put right first. A
 * file is taken or refused in words; what is taken is, stored again, the same; and of two copies of the term the newer one counts. */
#include "base/crc32c.h"
#include "journal/bytes.h"
#include "journal/end.h"
#include "journal/snapshot_file.h"
#include "journal/term.h"
#include "journal/text_file.h"
#include "node/node_file.h"
#include "room.h"

#include <inttypes.h>

#define WRONG_SUMS 128u /* of the first byte: the checksums are left as they are */

static bool refused(int result, const struct error_text *err)
{
    REQUIRE(result == HF_OK || (result == HF_EIO && err->text[0]));
    return result != HF_OK;
}

/* ---- the end mark ------------------------------------------------------------------------------ */

/* Its last line is a checksum of those before. */
static void try_end(struct room *room, uint8_t *bytes, size_t size, bool mend)
{
    struct error_text err = {""};
    uint8_t again[TEXT_FILE_MAX + 1];
    char line[16];
    struct end end;

    if (mend && size > 14) {
        snprintf(line, sizeof line, "mark %08" PRIx32 "\n", crc32c(0, bytes, size - 14));
        memcpy(bytes + size - 14, line, 14);
    }
    room_put(room, END_FILE, bytes, size);
    if (refused(end_load(&room->directory, &end, &err), &err))
        return;
    REQUIRE(end.known && end_store(&room->directory, &end, &err) == HF_OK);
    REQUIRE(room_get(room, END_FILE, again, sizeof again) == size);
    REQUIRE(memcmp(bytes, again, size) == 0);
}

/* ---- the term ---------------------------------------------------------------------------------- */

#define COPY_BYTES 36u /* magic, version, term, vote; checksum */
#define SUMMED 32u
static const char term_magic[] = "HFTerms1";

/* Two copies, one after the other; each in a block of its own, in the file. */
static void try_term(struct room *room, uint8_t *bytes, size_t size, bool mend)
{
    static uint8_t blocks[2 * BLOCK];
    struct error_text err = {""};
    struct term term, again;
    const uint8_t *newest = NULL;
    size_t copies = size / COPY_BYTES < 2 ? size / COPY_BYTES : 2, whole = 0;

    for (size_t i = 0; i < copies; i++) {
        uint8_t *copy = bytes + i * COPY_BYTES;

        if (mend)
            put_u32(copy + SUMMED, crc32c(0, copy, SUMMED));
        memcpy(blocks + i * BLOCK, copy, COPY_BYTES);
        if (memcmp(copy, term_magic, 8) != 0 || get_u32(copy + SUMMED) != crc32c(0, copy, SUMMED))
            continue;
        whole++;
        if (!newest || get_u64(copy + 8) > get_u64(newest + 8))
            newest = copy;
    }
    room_put(room, "term", blocks, copies ? (copies - 1) * BLOCK + COPY_BYTES : 0);
    REQUIRE(term_load(&room->directory, &term, &err) == HF_OK);
    REQUIRE(term.known == (newest != NULL));
    if (newest)
        REQUIRE(term.version == get_u64(newest + 8) && term.number == get_u64(newest + 16) &&
                term.vote == get_u64(newest + 24));
    REQUIRE(!term.once || whole < 2 || get_u64(bytes + 8) != get_u64(bytes + COPY_BYTES + 8));
    REQUIRE(term_mend(&room->directory, &term, &err) == HF_OK);
    if (!newest || term.version >= UINT64_MAX - 1)
        return;
    REQUIRE(term_load(&room->directory, &again, &err) == HF_OK);
    REQUIRE(again.known && again.number == term.number && again.vote == term.vote && !again.once);
    REQUIRE(term_store(&room->directory, &again, 77, 3, &err) == HF_OK);
    REQUIRE(term_load(&room->directory, &term, &err) == HF_OK);
    REQUIRE(term.known && !term.once && term.number == 77 && term.vote == 3);
}

/* ---- notes, and whose the directory is --------------------------------------------------------- */

/* With a line at the end that says their checksum. */
static size_t put_lines(struct room *room, const char *name, uint8_t *bytes, size_t size, bool mend)
{
    char *whole = malloc(size + 32);
    size_t used = size;

    REQUIRE(whole);
    memcpy(whole, bytes, size);
    if (mend)
        used += (size_t)sprintf(whole + size, "checksum %08" PRIx32 "\n", crc32c(0, bytes, size));
    room_put(room, name, whole, used);
    free(whole);
    return used;
}

static void try_note(struct room *room, uint8_t *bytes, size_t size, bool mend)
{
    char text[TEXT_FILE_MAX + 1], again[TEXT_FILE_MAX + 1];
    struct error_text err = {""};
    int result;

    put_lines(room, "note", bytes, size, mend);
    result = text_file_read_checked(&room->directory, "note", text, &err);
    REQUIRE(!mend || result == HF_OK || memchr(bytes, '\0', size));
    if (refused(result, &err))
        return;
    REQUIRE(!memchr(bytes, '\0', size)); /* what is behind it would not have been seen */
    REQUIRE(!mend || (strlen(text) == size && memcmp(text, bytes, size) == 0));
    REQUIRE(text_file_write_checked(&room->directory, "note", text, &err) == HF_OK);
    REQUIRE(text_file_read_checked(&room->directory, "note", again, &err) == HF_OK);
    REQUIRE(strcmp(text, again) == 0);
}

/* Some starts: alone or one of two, with a log or without. */
static void settle(struct room *room, unsigned how)
{
    static const struct replica_member members[] = {{.id = 1, .address = "db1:7421"},
                                                    {.id = 2, .address = "db2:7421"}};
    static struct replica_config there;
    static struct identity identity;
    struct identity_wanted wanted = {
        .id = 1 + how % 2, .members = members, .member_count = how & 2 ? 2 : 0, .incarnation = 9};
    struct error_text err = {""};
    int result;

    there.count = how & 4 ? 2 : 0;
    for (int i = 0; i < 2; i++) {
        there.at[i] = members[i];
        there.at[i].incarnation = 0x9;
        there.at[i].votes = true;
    }
    result = identity_settle(&room->directory, &wanted, &there, &identity, &err);
    REQUIRE(result == HF_OK || ((result == HF_EIO || result == HF_EREFUSED) && err.text[0]));
    if (result == HF_OK)
        REQUIRE(identity.incarnation != 0);
}

static void try_node(struct room *room, uint8_t *bytes, size_t size, bool mend, unsigned how)
{
    static struct node_file file, again;
    struct error_text err = {""};

    put_lines(room, FILES_NODE, bytes, size, mend);
    if (!refused(node_file_read(&room->directory, &file, &err), &err) && file.there) {
        REQUIRE(file.id != 0 && file.incarnation != 0);
        REQUIRE(node_file_write(&room->directory, &file, &err) == HF_OK);
        REQUIRE(node_file_read(&room->directory, &again, &err) == HF_OK);
        REQUIRE(node_file_same(&file, &again));
    }
    settle(room, how);
}

/* ---- snapshots --------------------------------------------------------------------------------- */

#define HEADER_BYTES 60u

static void mend_snapshot(uint8_t *bytes, size_t size)
{
    size_t left = size - HEADER_BYTES, first = get_u64(bytes + 32) % (left + 1);

    put_u64(bytes + 32, first);
    put_u64(bytes + 40, left - first);
    put_u32(bytes + 48, crc32c(0, bytes + HEADER_BYTES, first));
    put_u32(bytes + 52, crc32c(0, bytes + HEADER_BYTES + first, left - first));
    put_u32(bytes + 56, crc32c(0, bytes, 56));
}

static void try_snapshot(struct room *room, uint8_t *bytes, size_t size, bool mend)
{
    static uint8_t again[FUZZ_MAX * 2];
    struct snapshot_file snapshot;
    struct error_text err = {""};

    if (mend && size >= HEADER_BYTES)
        mend_snapshot(bytes, size);
    room_put(room, "snapshot-7", bytes, size);
    if (refused(snapshot_file_load(&room->directory, &snapshot, &err), &err))
        return;
    REQUIRE(snapshot.index == 7);
    REQUIRE(HEADER_BYTES + snapshot.configuration.iov_len + snapshot.data.iov_len == size);
    REQUIRE(snapshot_file_write(&room->directory, &snapshot, &err) == HF_OK);
    REQUIRE(room_get(room, "snapshot-7", again, sizeof again) == size);
    REQUIRE(memcmp(bytes, again, size) == 0);
    snapshot_file_free(&snapshot);
}

const int fuzz_rounds = 40000;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *bytes;
    struct room room;
    bool mend;

    if (size < 1 || size > FUZZ_MAX)
        return 0;
    mend = !(data[0] & WRONG_SUMS);
    bytes = fuzz_copy(data + 1, --size);
    room_begin(&room);
    switch (data[0] % 5) {
    case 0:
        try_end(&room, bytes, size, mend);
        break;
    case 1:
        try_term(&room, bytes, size, mend);
        break;
    case 2:
        try_note(&room, bytes, size, mend);
        break;
    case 3:
        try_node(&room, bytes, size, mend, data[0] / 5);
        break;
    default:
        try_snapshot(&room, bytes, size, mend);
    }
    room_end(&room);
    free(bytes);
    return 0;
}

/* ---- seeds ------------------------------------------------------------------------------------- */

static size_t binary_seed(unsigned which, uint8_t *ret_bytes)
{
    memset(ret_bytes, 0, 100);
    ret_bytes[0] = (uint8_t)(which ? 4 : 1);
    memcpy(ret_bytes + 1, which ? "HFskeep1\7" : term_magic, which ? 9 : 8);
    if (which) {
        ret_bytes[1 + 16] = 3;
        ret_bytes[1 + 32] = 5;
        return 1 + HEADER_BYTES + 20;
    }
    ret_bytes[1 + 8] = 4;
    ret_bytes[1 + 16] = 9;
    memcpy(ret_bytes + 1 + COPY_BYTES, term_magic, 8);
    ret_bytes[1 + COPY_BYTES + 8] = 5;
    return 1 + 2 * COPY_BYTES;
}

size_t fuzz_seed(unsigned n, uint8_t ret_bytes[FUZZ_MAX])
{
    static const struct {
        uint8_t first;
        const char *text;
    } texts[] = {
        {0, "log-3\ngroup 7\nentry 12\nchecksum 0000abcd\nopen\nmark 01234567\n"},
        {0, "log-1\ngroup 0\nentry 0\nchecksum 00000000\nclosed\nmark 01234567\n"},
        {2, "2 91f0c4a7e2d35b68 4711\n3 - 12\n"},
        {3, "node 1\nlife 0000000000000009\ncluster 1=db1:7421,2=db2:7421\n"
            "founded 0123456789abcdef0123456789abcdef\n"
            "founders 1=db1:7421/0000000000000009\nrestored 2026-11-01 of 7\n"},
        {18, "node 2\nlife 0000000000000009\njoined 0123456789abcdef0123456789abcdef\n"},
        {33, "node 1\nlife 0000000000000009\nmember 0123456789abcdef0123456789abcdef\n"},
    };

    if (n >= COUNT(texts))
        return n < COUNT(texts) + 2 ? binary_seed(n - (unsigned)COUNT(texts), ret_bytes) : 0;
    ret_bytes[0] = texts[n].first;
    memcpy(ret_bytes + 1, texts[n].text, strlen(texts[n].text));
    return 1 + strlen(texts[n].text);
}
