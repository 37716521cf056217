/* fuzz_record.c: what the file store finds in its directory. The input's first byte says what the rest is laid over: the record of a key,
 * whose checksums are put right unless that byte says otherwise; or the pages of the token file, likewise.
 *
 *     a record is read, or refused in words; what is read, written again, is the same
 *     a token is drawn, or refused in words; and it is greater than all that a whole slot says may have been given away in another boot */
#include "base/crc32c.h"
#include "base/hash.h"
#include "engines/file/record.h"
#include "engines/file/tokens.h"
#include "fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <holdfast/once.h>
#include <unistd.h>

#define WRONG_SUMS 1u /* of the first byte */
#define TOKENS 2u
#define KEY "a key"

/* ---- records ----------------------------------------------------------------------------------- */

#define HEAD_BYTES 616u

static struct directory folder = {.fd = -1, .locks_fd = -1, .file_mode = 0600};
static struct bootclock boot_clock = {.boot_id = "a boot"};

static void remove_folder(void)
{
    unlinkat(folder.locks_fd, "a%20key" RECORD_SUFFIX, 0);
    unlinkat(folder.locks_fd, "a%20key~new", 0);
    rmdir(folder.path);
}

/* In memory: it is written at each input. */
static void open_folder(void)
{
    char path[] = "/dev/shm/fuzz-record-XXXXXX";

    if (folder.locks_fd >= 0)
        return;
    REQUIRE(mkdtemp(path));
    snprintf(folder.path, sizeof folder.path, "%s", path);
    snprintf(folder.locks_path, sizeof folder.locks_path, "%s", path);
    folder.locks_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    REQUIRE(folder.locks_fd >= 0 && atexit(remove_folder) == 0);
}

static void put(uint8_t *at, uint32_t number)
{
    memcpy(at, &number, sizeof number);
}

static void mend_record(uint8_t *bytes, size_t size)
{
    uint64_t check = hash_bytes(bytes + 8, 48);

    put(bytes + 92, (uint32_t)(size - HEAD_BYTES));
    put(bytes + 96, crc32c(0, bytes + HEAD_BYTES, size - HEAD_BYTES));
    put(bytes + 64, crc32c(0, bytes + 68, HEAD_BYTES - 68));
    memcpy(bytes + 56, &check, sizeof check);
}

static void is_same_again(const struct record_place *place, const struct record *is)
{
    struct error_text err = {""};
    struct record again;

    REQUIRE(record_write(place, KEY, is->kind, is->token, is->left_ms, is->bytes, is->size, &err) ==
            HF_OK);
    REQUIRE(record_read(place, KEY, true, &again, &err) == HF_OK);
    REQUIRE(again.kind == is->kind && again.token == is->token && again.size == is->size);
    REQUIRE(is->size == 0 || !again.bytes || memcmp(again.bytes, is->bytes, is->size) == 0);
    free(again.bytes);
}

static void try_record(uint8_t *bytes, size_t size)
{
    const struct record_place place = {&folder, &boot_clock};
    struct error_text err = {""};
    char key[HF_NAME_MAX + 1];
    struct record record;
    bool fresh;
    int fd, result;

    fd = openat(folder.locks_fd, "a%20key" RECORD_SUFFIX, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC,
                0600);
    REQUIRE(fd >= 0 && pwrite(fd, bytes, size, 0) == (ssize_t)size);
    close(fd);
    if (record_glance(&place, "a%20key" RECORD_SUFFIX, key, &fresh))
        REQUIRE(key[0] && strlen(key) <= HF_NAME_MAX);
    result = record_read(&place, KEY, true, &record, &err);
    REQUIRE(result == HF_OK || ((result == HF_EIO || result == HF_EREFUSED) && err.text[0]));
    if (result != HF_OK)
        return;
    REQUIRE(record.kind == RECORD_RUNNING || record.kind == RECORD_DONE);
    REQUIRE(record.token > 0 && record.token <= HF_TOKEN_MAX && record.left_ms >= 0);
    REQUIRE(record.size <= HF_ONCE_RESULT_MAX &&
            (!record.bytes || record.size == size - HEAD_BYTES));
    if (record.left_ms > 0 && (record.bytes || record.size == 0))
        is_same_again(&place, &record);
    free(record.bytes);
}

/* ---- tokens ------------------------------------------------------------------------------------ */

#define SLOT_SUMMED 64u
#define BOOT "this boot"

static _Alignas(64) uint8_t state[TOKENS_FILE_SIZE];

static int read_state(void *context, void *bytes, size_t size, off_t offset)
{
    (void)context;
    REQUIRE(offset >= 0 && (size_t)offset + size <= sizeof state);
    memcpy(bytes, state + offset, size);
    return 0;
}

static int write_state(void *context, const void *bytes, size_t size, off_t offset)
{
    (void)context;
    REQUIRE(offset >= TOKENS_PAGE && (size_t)offset + size <= sizeof state);
    memcpy(state + offset, bytes, size);
    return 0;
}

static int nothing(void *context)
{
    (void)context;
    return 0;
}

static void no_unlock(void *context)
{
    (void)context;
}

/* What a slot says may have been given away; -1: it is not whole. */
static int64_t ceiling_of(const uint8_t *slot)
{
    uint64_t ceiling, check;

    memcpy(&ceiling, slot + 16, sizeof ceiling);
    memcpy(&check, slot + SLOT_SUMMED, sizeof check);
    if (memcmp(slot, "HFSLOT01", 8) != 0 || check != hash_bytes(slot, SLOT_SUMMED) ||
        ceiling > HF_TOKEN_MAX || !memchr(slot + 24, '\0', TOKENS_STORE_ID_SIZE))
        return -1;
    return (int64_t)ceiling;
}

static uint64_t generation_of(const uint8_t *slot)
{
    uint64_t generation;

    memcpy(&generation, slot + 8, sizeof generation);
    return generation;
}

/* 96 bytes of each page count. */
static void try_tokens(struct fuzz_input *input, bool mend)
{
    const struct tokens_disk disk = {.read = read_state,
                                     .write = write_state,
                                     .sync = nothing,
                                     .sync_directory = nothing,
                                     .lock = nothing,
                                     .unlock = no_unlock};
    uint8_t *one = state + TOKENS_PAGE, *other = state + 2 * TOKENS_PAGE;
    struct error_text err = {""};
    struct tokens tokens;
    uint64_t token = 0, next = 0;
    int64_t newest;
    bool is_believed;
    int result;

    tokens_format("a store", 5, state);
    for (size_t page = 0; page < 3; page++)
        for (size_t i = 0; i < 96; i++)
            state[page * TOKENS_PAGE + i] ^= (uint8_t)fuzz_byte(input);
    for (uint8_t *slot = one; mend && slot <= other; slot += TOKENS_PAGE) {
        uint64_t check = hash_bytes(slot, SLOT_SUMMED);

        memcpy(slot + SLOT_SUMMED, &check, sizeof check);
    }
    newest = ceiling_of(one);
    if (newest < 0 || (ceiling_of(other) >= 0 && generation_of(other) > generation_of(one)))
        newest = ceiling_of(other);
    is_believed =
        memcmp(state + 8, BOOT, sizeof BOOT) == 0; /* [T3] page 0, which has no checksum */
    tokens_init(&tokens, &disk, state, BOOT);
    result = tokens_draw(&tokens, INT64_MAX, &token, &err);
    REQUIRE(result == HF_OK || (result < 0 && err.text[0]));
    if (result != HF_OK)
        return;
    REQUIRE(token > 0 && token <= HF_TOKEN_MAX && (is_believed || (int64_t)token > newest));
    if (tokens_draw(&tokens, INT64_MAX, &next, &err) == HF_OK)
        REQUIRE(next > token);
}

const int fuzz_rounds = 30000;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    unsigned how = fuzz_byte(&input);
    uint8_t *bytes;

    if (how & TOKENS) {
        try_tokens(&input, !(how & WRONG_SUMS));
        return 0;
    }
    bytes = fuzz_copy(input.at, input.left);
    if (!(how & WRONG_SUMS) && input.left >= HEAD_BYTES)
        mend_record(bytes, input.left);
    open_folder();
    try_record(bytes, input.left);
    free(bytes);
    return 0;
}

size_t fuzz_seed(unsigned n, uint8_t ret_bytes[FUZZ_MAX])
{
    static const char boot[] = "a boot";

    if (n >= 5)
        return 0;
    memset(ret_bytes, 0, 1 + HEAD_BYTES + 20);
    ret_bytes[0] = n < 3 ? 0 : TOKENS;
    if (n >= 3)
        return 1 + (n == 4 ? 3 * 96 : 1);
    memcpy(ret_bytes + 1, "HFONCE01", 8);
    memcpy(ret_bytes + 1 + 8, boot, sizeof boot);
    ret_bytes[1 + 68] = (uint8_t)(1 + n % 2);
    ret_bytes[1 + 72] = 42;
    ret_bytes[1 + 80 + 2] = 100;
    ret_bytes[1 + 88] = sizeof KEY - 1;
    memcpy(ret_bytes + 1 + 104, KEY, sizeof KEY - 1);
    return 1 + HEAD_BYTES + (n == 2 ? 0 : 20);
}
