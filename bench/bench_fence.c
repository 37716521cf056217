/* bench_fence.c: how many rising tokens a fence admits, and what a token that raises nothing costs.
 *
 *     bench-fence DIR
 *
 * DIR is on the disk to be measured: each batch is synced to it. */
#include "measure.h"

#include <errno.h>
#include <fcntl.h>
#include <holdfast/guard.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROUNDS 21
#define BATCH 64
#define BATCHES_PER_ROUND 200
#define SINGLES_PER_ROUND 200
#define REPEATS 20000
#define KEYS 1000
#define KEY_SIZE 16
#define MANY_KEYS 1000000
#define MANY_KEY_SIZE 100
#define RATE_MIN 200000.0 /* tokens per second, in batches of 64 */

static uint64_t last_token = 1;

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "bench-fence: %s: %s %s\n", what, hf_error(), strerror(errno));
    exit(1);
}

static hf_fence *open_fence(const char *dir, const char *name)
{
    char path[4096];
    hf_fence *fence;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (hf_fence_open(path, NULL, &fence) != HF_OK)
        die("open");
    return fence;
}

/* ---- the disk alone -------------------------------------------------------------------------- */

static double bare_round(const char *dir)
{
    static const char page[4096];
    char path[4096];
    int64_t start;
    int fd;

    snprintf(path, sizeof path, "%s/bare", dir);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || pwrite(fd, page, sizeof page, 0) != sizeof page || fdatasync(fd) < 0)
        die("bare write");
    start = measure_now_ns();
    for (int i = 0; i < SINGLES_PER_ROUND; i++)
        if (pwrite(fd, page, sizeof page, 0) != sizeof page || fdatasync(fd) < 0)
            die("bare write");
    close(fd);
    return (double)(measure_now_ns() - start) / SINGLES_PER_ROUND / 1e3;
}

/* ---- rising tokens --------------------------------------------------------------------------- */

static void admit(hf_fence *fence, char keys[][MANY_KEY_SIZE + 1], size_t count)
{
    hf_fence_item items[HF_FENCE_BATCH_MAX];

    for (size_t i = 0; i < count; i++)
        items[i] = (hf_fence_item){keys[i], ++last_token, 0, 0};
    if (hf_fence_admit_many(fence, items, count, HF_NEWER) != HF_OK)
        die("admit");
    for (size_t i = 0; i < count; i++)
        if (items[i].result != HF_OK)
            die("refused");
}

static double batch_round(hf_fence *fence, int keys, int key_size, int batches)
{
    static char names[BATCH][MANY_KEY_SIZE + 1];
    int64_t start = measure_now_ns();

    for (int i = 0; i < batches; i++) {
        for (int j = 0; j < BATCH; j++) /* all over the place */
            snprintf(names[j], sizeof names[j], "account:%0*d", key_size - 8,
                     (int)((last_token + (uint64_t)j) * 7919 % (uint64_t)keys));
        admit(fence, names, BATCH);
    }
    return (double)(measure_now_ns() - start) / batches / BATCH / 1e3;
}

static double single_round(hf_fence *fence)
{
    int64_t start = measure_now_ns();

    for (int i = 0; i < SINGLES_PER_ROUND; i++) {
        hf_fence_entry *entry;

        if (hf_fence_begin(fence, "single", ++last_token, HF_NEWER, 0, &entry, NULL) != HF_OK)
            die("begin");
        hf_fence_end(entry);
    }
    return (double)(measure_now_ns() - start) / SINGLES_PER_ROUND / 1e3;
}

static void bench_rising(const char *dir)
{
    struct series bare = {0}, batches = {0}, singles = {0};
    hf_fence *fence = open_fence(dir, "rising");

    batch_round(fence, KEYS, KEY_SIZE, KEYS); /* all keys are there, and the file has its size */
    for (int i = 0; i < ROUNDS; i++) {
        series_add(&bare, bare_round(dir));
        series_add(&batches, batch_round(fence, KEYS, KEY_SIZE, BATCHES_PER_ROUND));
        series_add(&singles, single_round(fence));
    }
    hf_fence_close(fence);
    printf("a bare write of 4 KiB, synced: %.0f us; begin+end with a rising token: %.0f us\n",
           series_median(&bare), series_median(&singles));
    printf("rising tokens in batches of %d, %d keys of %d bytes: %.0f/s\n", BATCH, KEYS, KEY_SIZE,
           1e6 / series_median(&batches));
    report_limit("a rising token in batches of 64", series_median(&batches), "us", 1e6 / RATE_MIN);
}

/* ---- repeated tokens ------------------------------------------------------------------------- */

/* What this process has written so far, by any write(2) and the like; -1 where it cannot be known. */
static long long bytes_written(void)
{
    char text[1024] = "", *field;
    int fd = open("/proc/self/io", O_RDONLY | O_CLOEXEC);

    if (fd < 0 || read(fd, text, sizeof text - 1) <= 0)
        return -1;
    close(fd);
    field = strstr(text, "wchar: ");
    return field ? strtoll(field + strlen("wchar: "), NULL, 10) : -1;
}

static void bench_repeated(const char *dir)
{
    hf_fence *fence = open_fence(dir, "repeated");
    struct series admits = {0}, entries = {0};
    long long before;

    if (hf_fence_admit(fence, "key", 7, HF_NOT_OLDER, NULL) != HF_OK)
        die("admit");
    before = bytes_written();
    for (int i = 0; i < ROUNDS; i++) {
        int64_t start = measure_now_ns(), middle;

        for (int j = 0; j < REPEATS; j++)
            if (hf_fence_admit(fence, "key", 7, HF_NOT_OLDER, NULL) != HF_OK)
                die("admit");
        middle = measure_now_ns();
        for (int j = 0; j < REPEATS; j++) {
            hf_fence_entry *entry;

            if (hf_fence_begin(fence, "key", 7, HF_NOT_OLDER, 0, &entry, NULL) != HF_OK)
                die("begin");
            hf_fence_end(entry);
        }
        series_add(&admits, (double)(middle - start) / REPEATS / 1e3);
        series_add(&entries, (double)(measure_now_ns() - middle) / REPEATS / 1e3);
    }
    hf_fence_close(fence);
    printf("a repeated token: admit %.2f us, begin+end %.2f us\n", series_median(&admits),
           series_median(&entries));
    if (before >= 0)
        report_limit("bytes written by repeated tokens", (double)(bytes_written() - before), "B",
                     0);
}

/* ---- a million keys -------------------------------------------------------------------------- */

static void bench_million(const char *dir)
{
    static char names[HF_FENCE_BATCH_MAX][MANY_KEY_SIZE + 1];
    hf_fence *fence = open_fence(dir, "million");
    struct series batches = {0};
    char path[4096];
    struct stat st;
    int64_t start = measure_now_ns();

    for (int made = 0; made < MANY_KEYS;) {
        size_t count = 0;

        for (; count < HF_FENCE_BATCH_MAX && made < MANY_KEYS; count++, made++)
            snprintf(names[count], sizeof names[count], "account:%0*d", MANY_KEY_SIZE - 8,
                     (int)((long long)made * 7919 % MANY_KEYS));
        admit(fence, names, count);
    }
    printf("a million keys of %d bytes: made in %.1f s", MANY_KEY_SIZE,
           (double)(measure_now_ns() - start) / 1e9);
    for (int i = 0; i < ROUNDS; i++)
        series_add(&batches, batch_round(fence, MANY_KEYS, MANY_KEY_SIZE, BATCHES_PER_ROUND / 20));
    hf_fence_close(fence);
    snprintf(path, sizeof path, "%s/million/data.mdb", dir);
    if (stat(path, &st) < 0)
        die(path);
    printf(", %lld MiB; rising tokens in batches of 64 among them: %.0f/s\n",
           (long long)st.st_size >> 20, 1e6 / series_median(&batches));
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: bench-fence DIR\n");
        return 64;
    }
    bench_rising(argv[1]);
    bench_repeated(argv[1]);
    bench_million(argv[1]);
    return report_broken() ? 1 : 0;
}
