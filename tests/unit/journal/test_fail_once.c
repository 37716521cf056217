/* test_fail_once.c: each function of the disk fails once, in each way that it can, and each allocation; then the same with the system
 * calls of the machine's own disk. What was acknowledged is there afterwards, and what has failed works when it is done again: but for
 * an append, after which a journal is to be opened again. (test_sim_crashes.c has operations that fail with EIO, too, and goes on in a
 * new process each time; test_disk.c has the order of things.) */
#include "inside.h"
#include "life.h"
#include "walk.h"

#include <dirent.h>
#include <errno.h>
#include <unistd.h>

#define SEED 7

static struct life life;
static char home[PATH_MAX];
static uint64_t runs;
static bool crashes; /* this one, at its end */

static const enum life_step script[] = {
    LIFE_TERM,     LIFE_SPARE,    LIFE_APPEND, LIFE_APPEND, LIFE_LARGE,  LIFE_REPLACE, LIFE_APPEND,
    LIFE_SNAPSHOT, LIFE_REMOVE,   LIFE_TERM,   LIFE_LARGE,  LIFE_APPEND, LIFE_STOP,    LIFE_APPEND,
    LIFE_LARGE,    LIFE_SNAPSHOT, LIFE_REMOVE, LIFE_RESET,  LIFE_APPEND, LIFE_REOPEN,  LIFE_APPEND,
};

#define STEPS (sizeof script / sizeof *script)

static const int excuses[] = {HF_EIO, HF_ENOMEM, HF_EREFUSED, HF_OK};

/* ---- in front of the disk in memory ----------------------------------------------------------- */

static const int naming[] = {EIO, ENOSPC, 0};
static const int opening[] = {EMFILE, EIO, ENOSPC, 0};
static const int looking[] = {EIO, ENOMEM, 0};
static const int writing[] = {ENOSPC, EIO, FAILING_SHORT, 0};
static const int only_eio[] = {EIO, 0};
static const int locking[] = {ENOLCK, EIO, 0};

static const struct disk *inner; /* never fails, nor does its memory */

/* What it answers. */
#define ASK(function, ways, ...)                                          \
    int failure = failing_strike(FAILING_CALLS, "disk " #function, ways); \
                                                                          \
    (void)disk;                                                           \
    if (failure)                                                          \
        return failure;                                                   \
    failing_pause();                                                      \
    failure = inner->function(inner, __VA_ARGS__);                        \
    failing_resume();                                                     \
    return failure

static int make_directory(const struct disk *disk, const char *path, unsigned mode)
{
    ASK(make_directory, naming, path, mode);
}

static int sync_parent(const struct disk *disk, const char *path)
{
    ASK(sync_parent, only_eio, path);
}

static int real_path(const struct disk *disk, const char *path, char ret_path[PATH_MAX])
{
    ASK(real_path, looking, path, ret_path);
}

static int open_directory(const struct disk *disk, const char *path, int *ret_directory)
{
    ASK(open_directory, opening, path, ret_directory);
}

static bool note_name(void *context, const char *name)
{
    char(*names)[64] = context;
    size_t count = 0;

    while (names[count][0])
        count++;
    snprintf(names[count], sizeof *names, "%s", name);
    return true;
}

/* What is done with the names may fail again. A listing that fails has told some of them. */
static int list(const struct disk *disk, int directory, disk_name_fn *fn, void *context)
{
    int failure = failing_strike(FAILING_CALLS, "disk list", only_eio), result;
    char names[64][64] = {""};

    (void)disk;
    failing_pause();
    result = inner->list(inner, directory, note_name, names);
    failing_resume();
    for (size_t i = 0; names[i][0] && (!failure || i == 0); i++)
        if (!fn(context, names[i]))
            return 0;
    return failure ? failure : result;
}

static int look(const struct disk *disk, int directory, const char *name)
{
    ASK(look, looking, directory, name);
}

static int rename_file(const struct disk *disk, int directory, const char *from, const char *to)
{
    ASK(rename, naming, directory, from, to);
}

static int remove_file(const struct disk *disk, int directory, const char *name, bool gently)
{
    ASK(remove, only_eio, directory, name, gently);
}

static int sync_directory(const struct disk *disk, int directory)
{
    ASK(sync_directory, only_eio, directory);
}

static int open_file(const struct disk *disk, int directory, const char *name, enum disk_open how,
                     int *ret_file)
{
    ASK(open, opening, directory, name, how, ret_file);
}

/* It is closed, whatever it answers. */
static int close_handle(const struct disk *disk, int handle)
{
    int failure = failing_strike(FAILING_CALLS, "disk close", only_eio), result;

    (void)disk;
    failing_pause();
    result = inner->close(inner, handle);
    failing_resume();
    return failure ? failure : result;
}

static int lock(const struct disk *disk, int file)
{
    ASK(lock, locking, file);
}

static int size_of(const struct disk *disk, int file, uint64_t *ret_size)
{
    ASK(size, only_eio, file, ret_size);
}

static int read_some(const struct disk *disk, int file, void *bytes, size_t size, uint64_t offset,
                     size_t *ret_count)
{
    ASK(read, only_eio, file, bytes, size, offset, ret_count);
}

/* Cut short: half of it is there. */
static int write_all(const struct disk *disk, int file, const void *bytes, size_t size,
                     uint64_t offset, bool durable)
{
    int failure = failing_strike(FAILING_CALLS, "disk write", writing), result = 0;
    size_t half = size / 2 / SIM_DISK_SECTOR * SIM_DISK_SECTOR;

    (void)disk;
    failing_pause();
    if (!failure || (failure == FAILING_SHORT && half > 0))
        result = inner->write(inner, file, bytes, failure ? half : size, offset, durable);
    failing_resume();
    return failure == FAILING_SHORT ? EIO : failure ? failure : result;
}

static int make_room(const struct disk *disk, int file, uint64_t size)
{
    ASK(make_room, naming, file, size);
}

static int truncate_file(const struct disk *disk, int file, uint64_t size)
{
    ASK(truncate, only_eio, file, size);
}

static int sync_file(const struct disk *disk, int file)
{
    ASK(sync, only_eio, file);
}

static void random_bytes(const struct disk *disk, void *bytes, size_t size)
{
    (void)disk;
    inner->random(inner, bytes, size);
}

static const struct disk front = {
    .make_directory = make_directory,
    .sync_parent = sync_parent,
    .real_path = real_path,
    .open_directory = open_directory,
    .list = list,
    .look = look,
    .rename = rename_file,
    .remove = remove_file,
    .sync_directory = sync_directory,
    .open = open_file,
    .close = close_handle,
    .lock = lock,
    .size = size_of,
    .read = read_some,
    .write = write_all,
    .make_room = make_room,
    .truncate = truncate_file,
    .sync = sync_file,
    .random = random_bytes,
};

/* ---- the scenario ------------------------------------------------------------------------------ */

static bool step_told(const char *name, bool done)
{
    return told_words(name, HF_OK, done ? HF_OK : life.result, life.err.text, excuses);
}

static int ignore(void *context, const struct journal_record *record, struct error_text *err)
{
    (void)err;
    *(uint64_t *)context = record->index;
    return HF_OK;
}

/* All that is there, from its beginning. */
static void read_range(void)
{
    const struct model *model = &life.acked;
    uint64_t last = 0;

    if (model->next == model->kept)
        return;
    life.result = journal_read_range(life.journal, model->kept, model->next, SIZE_MAX, ignore,
                                     &last, &life.err);
    if (step_told("range", life.result == HF_OK))
        walk_must(last == model->next - 1);
}

/* After an append that may be there the journal is not used any more. */
static bool may_go_on(enum life_step step)
{
    bool appends = step == LIFE_APPEND || step == LIFE_LARGE || step == LIFE_REPLACE;

    return !(appends && life.result == HF_EIO) && life.journal && step != LIFE_STOP &&
           step != LIFE_REOPEN;
}

/* If a failure has no consequence, the power fails at once, as far as there is a power: it must have had none on the disk. */
static void run_steps(void)
{
    bool struck = failing_struck();

    for (size_t i = 0; i < STEPS; i++) {
        if (!step_told("step", life_step(&life, script[i]))) {
            if (!may_go_on(script[i]))
                return;
            step_told("the same again", life_step(&life, script[i]));
        } else if (failing_struck() && !struck && life.table == &front) {
            crashes = true;
            return;
        }
        struck = failing_struck();
        if (script[i] == LIFE_APPEND)
            read_range();
    }
}

static void run(void *context)
{
    (void)context;
    life.may_fail = true;
    if (step_told("open", life_recover(&life)))
        run_steps();
    life_close(&life);
    life.may_fail = false;
}

/* Without a shell: that is started slowly by a process with a sanitizer. */
static void remove_data(void)
{
    DIR *names = opendir(LIFE_PATH);
    struct dirent *entry;

    while (names && (entry = readdir(names)))
        unlinkat(dirfd(names), entry->d_name, 0);
    if (names)
        closedir(names);
    rmdir(LIFE_PATH);
}

static void prepare(void *context)
{
    life_begin(&life, SEED);
    life.table = context;
    crashes = context == &front && runs++ % 2;
    inner = sim_disk_table(life.disk);
    if (context != &front)
        remove_data();
}

/* The power fails, too, at least every second time. */
static void judge(void *context)
{
    (void)context;
    if (crashes)
        life_crash(&life);
    failing_pause(); /* the sanitizer's count is of what the room has */
    walk_must(life_recover(&life));
    run_steps();
    failing_resume();
    life_end(&life);
}

static void walk_disk(const char *name, enum failing_what what, const struct disk *disk)
{
    struct walk walk = {.name = name,
                        .what = what,
                        .whose = FAILING_OURS,
                        .context = (void *)(uintptr_t)disk,
                        .prepare = prepare,
                        .run = run,
                        .judge = judge};

    walk_all(&walk);
}

static void each_function_of_the_disk(void **state)
{
    (void)state;
    walk_disk("journal, the table of the disk", FAILING_CALLS, &front);
}

static void each_allocation(void **state)
{
    (void)state;
    walk_disk("journal", FAILING_ALLOCATIONS, &front);
}

static void each_system_call(void **state)
{
    (void)state;
    walk_disk("journal, the machine's disk", FAILING_CALLS, disk_system());
}

static int set_up(void **state)
{
    const char *where = getenv("HOLDFAST_TEST_DIR");

    (void)state;
    if (access("/dev/shm", W_OK) == 0) /* what fails counts, and no disk is waited for */
        where = "/dev/shm";
    snprintf(home, sizeof home, "%s/journal-XXXXXX", where ? where : "/tmp");
    return mkdtemp(home) && chdir(home) == 0 ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    remove_data();
    return chdir("/") == 0 && rmdir(home) == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_function_of_the_disk, set_up, tear_down),
        cmocka_unit_test_setup_teardown(each_allocation, set_up, tear_down),
        cmocka_unit_test_setup_teardown(each_system_call, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
