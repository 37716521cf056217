#include "contract.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- files ------------------------------------------------------------------------------------ */

static void copy_file(const char *from, const char *to)
{
    static char bytes[65536];
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    ssize_t got;

    assert_true(in >= 0 && out >= 0);
    while ((got = read(in, bytes, sizeof bytes)) > 0)
        assert_int_equal(write(out, bytes, (size_t)got), got);
    assert_int_equal(got, 0);
    close(in);
    close(out);
}

/* to NULL: only counts. */
static unsigned each_file(const char *from, const char *to, const char *begins)
{
    struct dirent **names;
    int count = scandir(from, &names, NULL, alphasort);
    unsigned found = 0;

    assert_true(count >= 0);
    for (int i = 0; i < count; i++) {
        const char *name = names[i]->d_name;
        char source[2 * PATH_MAX], target[2 * PATH_MAX];

        if (name[0] != '.' && strncmp(name, begins, strlen(begins)) == 0) {
            found++;
            snprintf(source, sizeof source, "%s/%s", from, name);
            snprintf(target, sizeof target, "%s/%s", to ? to : "", name);
            if (to && access(target, F_OK) != 0)
                copy_file(source, target);
        }
        free(names[i]);
    }
    free(names);
    return found;
}

void copy_files(const char *from, const char *to, const char *begins)
{
    each_file(from, to, begins);
}

unsigned count_files(const char *path, const char *begins)
{
    return each_file(path, NULL, begins);
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info;
    (void)kind;
    (void)where;
    return remove(path);
}

/* ---- a subject in a directory ----------------------------------------------------------------- */

static void on_beat(uv_timer_t *beat)
{
    (void)beat;
}

static void on_done(void *context)
{
    *(bool *)context = true;
}

void subject_init_on_disk(struct subject *subject, unsigned members)
{
    const char *below = getenv("HOLDFAST_TEST_DIR");

    subject_init(subject, members);
    snprintf(subject->home, sizeof subject->home, "%s/contract-XXXXXX", below ? below : "/var/tmp");
    assert_non_null(mkdtemp(subject->home));
    snprintf(subject->path, sizeof subject->path, "%s/data", subject->home);
}

void disk_enter(struct subject *subject)
{
    const struct storage_options options = {.path = subject->path, .segment_bytes = SEGMENT_BYTES};
    struct error_text err = {""};

    assert_int_equal(uv_loop_init(&subject->loop), 0);
    uv_timer_init(&subject->loop, &subject->beat);
    uv_timer_start(&subject->beat, on_beat, 1, 1);
    if (storage_open(&subject->loop, &options, &subject->storage, &err) != HF_OK)
        fail_msg("storage_open: %s", err.text);
}

void disk_leave(struct subject *subject)
{
    bool closed = false;

    storage_close(subject->storage, on_done, &closed);
    while (!closed)
        uv_run(&subject->loop, UV_RUN_ONCE);
    subject->storage = NULL;
    uv_close((uv_handle_t *)&subject->beat, NULL);
    uv_run(&subject->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&subject->loop), 0);
}

void disk_remove(struct subject *subject)
{
    if (subject->home[0])
        nftw(subject->home, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

void subject_keep(struct subject *subject)
{
    snprintf(subject->kept, sizeof subject->kept, "%s/kept-%u", subject->home, ++subject->copies);
    assert_int_equal(mkdir(subject->kept, 0700), 0);
    copy_files(subject->path, subject->kept, "");
}

void subject_crash(struct subject *subject)
{
    assert_true(subject->kept[0]);
    if (subject->running)
        subject_stop(subject);
    snprintf(subject->path, sizeof subject->path, "%s", subject->kept);
    subject->kept[0] = '\0';
    subject->keep_at = 0;
    subject->state[0] = '\0';
    subject->restores = 0;
    told_forget(subject);
    subject_start(subject);
}
