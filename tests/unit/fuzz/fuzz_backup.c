/* fuzz_backup.c: files that somebody gives to 'holdfastd --restore-from'. The first byte of the input says what is put right before it is read: the head
 * and the end of the file around the rest, or nothing. What is taken is within the bytes, is a snapshot, and says of itself what the head says. */
#include "base/backup_file.h"
#include "base/crc32c.h"
#include "node/backup_image.h"
#include "tables.h"

#define AS_IT_IS 1u /* of the first byte */

static void try_file(const uint8_t *bytes, size_t size)
{
    struct backup_image image;
    struct error_text err = {""};
    int result = backup_image_parse(bytes, size, "it", &image, &err);
    const struct replica_snapshot *snapshot = &image.snapshot;

    REQUIRE(result == HF_OK || ((result == HF_EIO || result == HF_EREFUSED) && err.text[0]));
    if (result != HF_OK)
        return;
    REQUIRE(image.head == bytes + BACKUP_FILE_HEAD);
    REQUIRE((const uint8_t *)snapshot->table == image.head + image.head_size);
    REQUIRE(BACKUP_FILE_HEAD + image.head_size + snapshot->table_size + BACKUP_FILE_END == size);
    REQUIRE(snapshot->config.count > 0 && snapshot->id.index > 0);
}

const int fuzz_rounds = 20000;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct replica_snapshot snapshot;
    struct backup_file about = {.size = size > 0 ? size - 1 : 0};
    size_t whole = BACKUP_FILE_HEAD + (size_t)about.size + BACKUP_FILE_END;
    uint8_t *bytes;

    if (size == 0)
        return 0;
    if (data[0] & AS_IT_IS) {
        bytes = fuzz_copy(data + 1, size - 1);
        try_file(bytes, size - 1);
        free(bytes);
        return 0;
    }
    bytes = malloc(whole);
    REQUIRE(bytes);
    if (size > 1)
        memcpy(bytes + BACKUP_FILE_HEAD, data + 1, size - 1);
    if (replica_snapshot_decode(bytes + BACKUP_FILE_HEAD, size - 1, &snapshot)) {
        memcpy(about.cluster, snapshot.cluster, sizeof about.cluster);
        about.index = snapshot.id.index;
        about.term = snapshot.id.term;
    }
    backup_file_write_head(&about, bytes);
    backup_file_write_end(crc32c(0, bytes, whole - BACKUP_FILE_END),
                          bytes + whole - BACKUP_FILE_END);
    try_file(bytes, whole);
    free(bytes);
    return 0;
}

/* The n-th table, as a snapshot alone and as a whole file. */
size_t fuzz_seed(unsigned n, uint8_t ret_bytes[FUZZ_MAX])
{
    struct replica_snapshot snapshot = {.id = {.index = 7 + n, .term = 2, .chain = 5},
                                        .version = 1,
                                        .cluster = "0123456789abcde",
                                        .config = {.index = 1, .count = 1}};
    struct core *core = table_sample(n / 2);
    uint8_t head[REPLICA_SNAPSHOT_HEAD_MAX];
    struct backup_file about = {.index = snapshot.id.index, .term = snapshot.id.term};
    size_t table_size, head_size, at = 1;
    void *table;

    if (!core)
        return 0;
    snapshot.config.at[0] = (struct replica_member){.id = 1, .incarnation = 9, .votes = true};
    snapshot.table = table = table_snapshot(core, &table_size);
    snapshot.table_size = table_size;
    head_size = replica_snapshot_encode(&snapshot, head);
    about.size = head_size + table_size;
    memcpy(about.cluster, snapshot.cluster, sizeof about.cluster);
    REQUIRE(1 + BACKUP_FILE_HEAD + about.size + BACKUP_FILE_END <= FUZZ_MAX);
    ret_bytes[0] = n % 2 ? AS_IT_IS : 0;
    if (n % 2) {
        backup_file_write_head(&about, ret_bytes + at);
        at += BACKUP_FILE_HEAD;
    }
    memcpy(ret_bytes + at, head, head_size);
    memcpy(ret_bytes + at + head_size, table, table_size);
    at += head_size + table_size;
    if (n % 2) {
        backup_file_write_end(crc32c(0, ret_bytes + 1, at - 1), ret_bytes + at);
        at += BACKUP_FILE_END;
    }
    free(table);
    core_free(core);
    return at;
}
