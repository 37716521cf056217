/* mutate.c: a main for a fuzz target, where there is no libFuzzer.
 *
 *     fuzz-NAME                runs the target over its seeds, and over many mutations of them
 *     fuzz-NAME --corpus DIR   over the files in DIR, too, all of them first
 *     fuzz-NAME --seeds DIR    writes the seeds into DIR, for tools/fuzz
 *     fuzz-NAME FILE...        runs it over these inputs, for instance one that tools/fuzz has found
 *
 * The same bytes each time: what fails, fails again. */
#include "fuzz.h"

#include <dirent.h>

#define SOUND_MAX 256 /* seeds and files together */

/* A sanitizer makes it many times slower. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define ROUNDS (fuzz_rounds / 10)
#else
#define ROUNDS fuzz_rounds
#endif

static uint64_t state = UINT64_C(88172645463325252);

static size_t below(size_t limit)
{
    REQUIRE(limit > 0);
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

/* What mutations are made of. */
static struct input {
    uint8_t bytes[FUZZ_MAX];
    size_t size;
} sound[SOUND_MAX];
static unsigned sound_count;

static void add_seeds(void)
{
    size_t size;

    while (sound_count < SOUND_MAX && (size = fuzz_seed(sound_count, sound[sound_count].bytes)) > 0)
        sound[sound_count++].size = size;
    REQUIRE(sound_count > 0);
}

static bool add_file(const char *directory, const char *name)
{
    struct input *input = &sound[sound_count];
    char path[4096];
    FILE *file;

    REQUIRE(sound_count < SOUND_MAX);
    snprintf(path, sizeof path, "%s/%s", directory, name);
    file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return false;
    }
    input->size = fread(input->bytes, 1, sizeof input->bytes, file);
    fclose(file);
    sound_count += input->size > 0;
    return true;
}

/* In the order of their names: a directory has none. */
static bool add_corpus(const char *directory)
{
    struct dirent **names;
    int count = scandir(directory, &names, NULL, alphasort);
    bool well = count > 0;

    if (count < 0)
        perror(directory);
    for (int i = 0; i < count; i++) {
        if (names[i]->d_name[0] != '.')
            well = add_file(directory, names[i]->d_name) && well;
        free(names[i]);
    }
    if (count >= 0)
        free(names);
    return well;
}

static int run_mutations(void)
{
    static uint8_t bytes[FUZZ_MAX];

    LLVMFuzzerTestOneInput(bytes, 0);
    for (unsigned i = 0; i < sound_count; i++)
        LLVMFuzzerTestOneInput(sound[i].bytes, sound[i].size);
    for (int round = 0; round < ROUNDS; round++) {
        const struct input *from = &sound[below(sound_count)];
        size_t size = from->size;

        memcpy(bytes, from->bytes, size);
        for (size_t changes = 1 + below(3); changes > 0; changes--)
            size = mutate(bytes, size);
        LLVMFuzzerTestOneInput(bytes, size);
    }
    printf("%u inputs, %d mutations\n", sound_count, ROUNDS);
    return 0;
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
    if (argc == 1 || (argc == 3 && strcmp(argv[1], "--corpus") == 0)) {
        add_seeds();
        return argc == 1 || add_corpus(argv[2]) ? run_mutations() : 1;
    }
    for (int i = 1; i < argc; i++)
        failed |= run_file(argv[i]);
    return failed;
}
