/* mutate.c: a main for a fuzz target, where there is no libFuzzer.
 *
 *     fuzz-NAME               runs the target over its seeds, and over many mutations of them
 *     fuzz-NAME --seeds DIR   writes the seeds into DIR, for tools/fuzz
 *     fuzz-NAME FILE...       runs it over these inputs, for instance one that tools/fuzz has found
 *
 * The same bytes each time: what fails, fails again. */
#include "fuzz.h"

/* A sanitizer makes it many times slower. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define ROUNDS (fuzz_rounds / 10)
#else
#define ROUNDS fuzz_rounds
#endif

static uint64_t state = UINT64_C(88172645463325252);

static size_t below(size_t limit)
{
    state ^= state << 13; /* xorshift64 */
    state ^= state >> 7;
    state ^= state << 17;
    return (size_t)(state >> 11) % limit;
}

/* One small change. */
static size_t mutate(uint8_t *bytes, size_t size)
{
    size_t at = below(size), length = 1 + below(8), from = below(size);

    length = length < size - at ? length : size - at;
    switch (below(6)) {
    case 0:
        bytes[at] = (uint8_t)below(256);
        return size;
    case 1:
        bytes[at] ^= (uint8_t)(1u << below(8));
        return size;
    case 2:
        bytes[at] = (uint8_t)(bytes[at] + (below(2) ? 1 : 255));
        return size;
    case 3: /* take some away */
        if (size - length < 8)
            return size;
        memmove(bytes + at, bytes + at + length, size - at - length);
        return size - length;
    case 4: /* repeat some */
        length = length < FUZZ_MAX - size ? length : FUZZ_MAX - size;
        memmove(bytes + at + length, bytes + at, size - at);
        return size + length;
    default: /* copy some from elsewhere */
        length = length < size - from ? length : size - from;
        memmove(bytes + at, bytes + from, length);
        return size;
    }
}

static void run_mutations(void)
{
    uint8_t bytes[FUZZ_MAX] = {0};
    unsigned seeds = 0;

    LLVMFuzzerTestOneInput(bytes, 0);
    for (size_t size; (size = fuzz_seed(seeds, bytes)) > 0; seeds++)
        LLVMFuzzerTestOneInput(bytes, size);
    REQUIRE(seeds > 0);
    for (int round = 0; round < ROUNDS; round++) {
        size_t size = fuzz_seed((unsigned)below(seeds), bytes);

        for (size_t changes = 1 + below(3); changes > 0; changes--)
            size = mutate(bytes, size);
        LLVMFuzzerTestOneInput(bytes, size);
    }
    printf("%u seeds, %d mutations\n", seeds, ROUNDS);
}

static int write_seeds(const char *directory)
{
    uint8_t bytes[FUZZ_MAX];
    size_t size;

    for (unsigned n = 0; (size = fuzz_seed(n, bytes)) > 0; n++) {
        char path[1024];
        FILE *file;

        snprintf(path, sizeof path, "%s/seed-%u", directory, n);
        file = fopen(path, "wb");
        if (!file || fwrite(bytes, 1, size, file) != size || fclose(file) != 0) {
            perror(path);
            return 1;
        }
    }
    return 0;
}

static int run_file(const char *path)
{
    static uint8_t bytes[1 << 20];
    FILE *file = fopen(path, "rb");
    size_t size;

    if (!file) {
        perror(path);
        return 1;
    }
    size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    LLVMFuzzerTestOneInput(bytes, size);
    return 0;
}

int main(int argc, char **argv)
{
    int failed = 0;

    if (argc == 3 && strcmp(argv[1], "--seeds") == 0)
        return write_seeds(argv[2]);
    if (argc == 1)
        run_mutations();
    for (int i = 1; i < argc; i++)
        failed |= run_file(argv[i]);
    return failed;
}
