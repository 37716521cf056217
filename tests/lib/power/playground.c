#define _XOPEN_SOURCE 700
#include "playground.h"
#include "recorder.h"

#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define MEMORY "/dev/shm"

static const char *judged; /* the image that is being judged, in words; NULL: none is */

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *place)
{
    (void)info;
    (void)type;
    return place->level > 0 ? remove(path) : 0;
}

void playground_empty(const char *directory)
{
    assert_int_equal(nftw(directory, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

static void make(const char *below, const char *name, char ret_home[PATH_MAX - 64])
{
    char path[PATH_MAX - 64];

    snprintf(path, sizeof path, "%s/power-%s-XXXXXX", below, name);
    assert_non_null(mkdtemp(path));
    assert_non_null(realpath(path, ret_home));
}

void playground_init(struct playground *playground, const char *name)
{
    const char *below = getenv("HOLDFAST_TEST_DIR");

    make(below ? below : "/var/tmp", name, playground->home);
    make(access(MEMORY, W_OK) == 0 ? MEMORY : playground->home, name, playground->fast);
    snprintf(playground->disk, sizeof playground->disk, "%s/disk", playground->home);
    snprintf(playground->trace, sizeof playground->trace, "%s/trace", playground->home);
    snprintf(playground->image, sizeof playground->image, "%s/image", playground->fast);
    assert_int_equal(mkdir(playground->disk, 0700), 0);
    assert_int_equal(mkdir(playground->image, 0700), 0);
}

void playground_free(struct playground *playground)
{
    if (judged)
        print_error("%s\n", judged);
    judged = NULL;
    recorder_skip_syncs(false);
    recorder_set_boot_id(NULL);
    recorder_seed(0);
    playground_empty(playground->fast);
    assert_int_equal(rmdir(playground->fast), 0);
    playground_empty(playground->home);
    assert_int_equal(rmdir(playground->home), 0);
}

bool playground_in_full(void)
{
    const char *soak = getenv("HF_SOAK");

    return soak && strcmp(soak, "1") == 0;
}

/* ---- recording -------------------------------------------------------------------------------- */

void playground_record(struct playground *playground)
{
    playground_empty(playground->disk);
    recorder_begin(playground->trace, playground->disk);
}

void playground_mark(const struct playground *playground, uint64_t number)
{
    struct trace_record mark = {.kind = TRACE_MARK, .offset = number};
    int fd = open(playground->trace, O_WRONLY | O_APPEND | O_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, &mark, sizeof mark), sizeof mark);
    close(fd);
}

static void load(const struct playground *playground, struct disk_state *ret_state)
{
    struct stat info;

    assert_int_equal(stat(playground->disk, &info), 0);
    disk_state_load(ret_state, playground->trace, info.st_ino);
}

static void put(void *context, const struct image *image)
{
    image_put(image, context);
}

void playground_recorded(struct playground *playground)
{
    struct disk_state state;
    char command[3 * PATH_MAX];

    recorder_end();
    load(playground, &state);
    while (disk_state_step(&state))
        ;
    images_whole(&state, put, playground->image);
    snprintf(command, sizeof command, "diff -r '%s' '%s' >&2", playground->disk, playground->image);
    if (system(command) != 0)
        fail_msg("the trace does not make what is there: a call is not recorded");
    playground_empty(playground->image);
    disk_state_free(&state);
}

/* ---- judging ---------------------------------------------------------------------------------- */

struct judge {
    struct playground *playground;
    const struct disk_state *state;
    judge_fn *fn;
    void *context;
};

static void judge_one(void *context, const struct image *image)
{
    const struct judge *judge = context;

    judged = image_describe(image);
    image_put(image, judge->playground->image);
    judge->fn(judge->context, judge->playground, judge->state->marks, judge->state->mark);
    playground_empty(judge->playground->image);
    judged = NULL;
}

void playground_judge(struct playground *playground, struct images *images, judge_fn *fn,
                      void *context)
{
    struct disk_state state;
    const struct judge judge = {playground, &state, fn, context};
    bool more = true;

    load(playground, &state);
    recorder_skip_syncs(true);
    while (more) {
        images_each(images, &state, judge_one, (void *)(uintptr_t)&judge);
        more = disk_state_step(&state);
    }
    recorder_skip_syncs(false);
    disk_state_free(&state);
}
