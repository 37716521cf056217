/* file.c: the file store's table, and opening it. */
#include "engines/file/file.h"
#include "engines/file/forks.h"
#include "engines/file/store.h"

#include "base/clock.h"
#include "base/filesize.h"
#include "base/random.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- the real disk of tokens.c --------------------------------------------------------------- */

static int disk_read(void *context, void *bytes, size_t size, off_t offset)
{
    struct engine_store *store = context;
    int failure = directory_read_file(store->tokens_fd, bytes, size, offset);

    return failure < 0 ? EIO : failure;
}

static int disk_write(void *context, const void *bytes, size_t size, off_t offset)
{
    struct engine_store *store = context;

    return filesize_write(store->tokens_fd, bytes, size, offset);
}

static int disk_sync(void *context)
{
    struct engine_store *store = context;

    return fdatasync(store->tokens_fd) < 0 ? errno : 0;
}

/* The directory, and the one that it is in: whoever made it may have been killed before syncing. */
static int disk_sync_directory(void *context)
{
    struct engine_store *store = context;
    int parent, failure = 0;

    if (fsync(store->directory.fd) < 0)
        return errno;
    parent = openat(store->directory.fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0)
        return 0; /* we may not look at it, so it is not we who made the directory */
    if (fsync(parent) < 0)
        failure = errno;
    close(parent);
    return failure;
}

/* The kernel's lock excludes other processes, and other stores of this one. Threads of this store have the
 * same descriptor, which is one to the kernel, so they exclude each other first. No mutex is held meanwhile:
 * a fork need not wait, and its child has no use for this store. */
static int disk_lock(void *context)
{
    struct engine_store *store = context;
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    int failure;

    if (atomic_exchange(&store->tokens_locked, true))
        return EAGAIN;
    if (fcntl(store->tokens_fd, F_OFD_SETLK, &range) == 0)
        return 0;
    failure = errno == EACCES ? EAGAIN : errno;
    atomic_store(&store->tokens_locked, false);
    return failure;
}

static void disk_unlock(void *context)
{
    struct engine_store *store = context;
    struct flock range = {.l_type = F_UNLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};

    fcntl(store->tokens_fd, F_OFD_SETLK, &range);
    atomic_store(&store->tokens_locked, false);
}

/* ---- the token file -------------------------------------------------------------------------- */

static void warn_of_clock(const struct engine_store *store)
{
    char text[PATH_MAX + 200];

    snprintf(text, sizeof text,
             "the wall clock is obviously wrong, so the tokens of the new store in %s begin at 1: "
             "if a guard "
             "has seen tokens of another, raise them with 'holdfast floor'",
             store->directory.path);
    store->host.warn(store->host.context, text);
}

/* Tokens begin at the wall clock: a store that was lost goes on above what its guards have seen. */
static int create_token_file(struct engine_store *store, struct error_text *err)
{
    unsigned char bytes[TOKENS_FILE_SIZE], id[12];
    char temp[DIRECTORY_TEMP_MAX], id_text[2 * sizeof id + 1];
    uint64_t first = clock_first_token(clock_wall_us());
    int fd, failure, result;
    bool ours = true;

    random_fill(id, sizeof id);
    text_hex(id, sizeof id, id_text);
    tokens_format(id_text, first, bytes);
    result = directory_temp_file(&store->directory, store->directory.fd, temp, &fd, err);
    if (result != HF_OK)
        return result;
    failure = filesize_write(fd, bytes, sizeof bytes, 0);
    if (!failure && fsync(fd) < 0)
        failure = errno;
    /* Synced before it has its name, and never replaced: whoever comes second uses the first one's.
     */
    if (!failure &&
        linkat(store->directory.fd, temp, store->directory.fd, FILE_STATE_NAME, 0) < 0) {
        ours = false;
        failure = errno == EEXIST ? 0 : errno;
    }
    unlinkat(store->directory.fd, temp, 0);
    close(fd);
    if (!failure && ours && first == 0)
        warn_of_clock(store);
    return failure ? directory_failure(&store->directory, failure, "create the token file", err)
                   : HF_OK;
}

static int open_token_file(struct engine_store *store, int flags)
{
    return forks_open(store->directory.fd, FILE_STATE_NAME, flags);
}

static int map_token_file(struct engine_store *store, int fd, void **ret_page,
                          struct error_text *err)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return directory_failure(&store->directory, errno, "look at the token file", err);
    if (!S_ISREG(st.st_mode) || st.st_size < TOKENS_FILE_SIZE)
        return error_set(
            err, HF_EIO,
            "%s is damaged, and nobody can tell how far it had counted: see 'a damaged token file' "
            "in docs/file-store.md",
            store->tokens_path);
    *ret_page = forks_map(fd, TOKENS_PAGE);
    if (!*ret_page)
        return directory_failure(&store->directory, errno, "map the token file", err);
    return HF_OK;
}

/* Read once: it stays as it is for as long as the process lives, and there may be no descriptors later. */
int file_open_clock_locked(struct engine_store *store, struct error_text *err)
{
    int result;

    if (atomic_load_explicit(&store->clock_ready, memory_order_acquire))
        return HF_OK;
    result = bootclock_read(&store->clock, err);
    if (result == HF_OK)
        atomic_store_explicit(&store->clock_ready, true, memory_order_release);
    return result;
}

int file_open_clock(struct engine_store *store, struct error_text *err)
{
    int result;

    pthread_mutex_lock(&store->tokens_mutex);
    result = file_open_clock_locked(store, err);
    pthread_mutex_unlock(&store->tokens_mutex);
    return result;
}

static int open_tokens_locked(struct engine_store *store, bool to_draw, struct error_text *err)
{
    struct tokens_disk disk = {.context = store,
                               .path = store->tokens_path,
                               .read = disk_read,
                               .write = disk_write,
                               .sync = disk_sync,
                               .sync_directory = disk_sync_directory,
                               .lock = disk_lock,
                               .unlock = disk_unlock};
    char boot_id[BOOT_ID_SIZE];
    void *page = NULL;
    int fd, failure, result = bootclock_read_id(boot_id, err);

    if (result != HF_OK)
        return result;
    fd = open_token_file(store, O_RDWR);
    if (fd < 0 && errno == ENOENT) {
        result = create_token_file(store, err);
        if (result != HF_OK)
            return result;
        fd = open_token_file(store, O_RDWR);
    }
    failure = errno;
    if (fd < 0 && !to_draw)
        fd = open_token_file(store, O_RDONLY);
    else if (fd >= 0)
        result = map_token_file(store, fd, &page, err);
    if (fd < 0)
        return directory_failure(&store->directory, failure, "open the token file", err);
    if (result != HF_OK) {
        forks_close(fd);
        return result;
    }
    if (store->tokens_fd >= 0)
        forks_close(store->tokens_fd); /* it was open for reading only */
    tokens_init(&store->tokens, &disk, page, boot_id);
    store->tokens_fd = fd;
    return HF_OK;
}

int file_open_tokens(struct engine_store *store, bool to_draw, struct error_text *err)
{
    int result = HF_OK;

    if (atomic_load_explicit(&store->tokens_ready, memory_order_acquire))
        return HF_OK;
    pthread_mutex_lock(&store->tokens_mutex);
    if (store->tokens_fd < 0 || (to_draw && !store->tokens.page))
        result = open_tokens_locked(store, to_draw, err);
    if (result == HF_OK && store->tokens.page)
        atomic_store_explicit(&store->tokens_ready, true, memory_order_release);
    pthread_mutex_unlock(&store->tokens_mutex);
    return result;
}

/* ---- the store ------------------------------------------------------------------------------- */

/* Once: whoever meant another directory, or another store, notices. */
static void say_made(const struct engine_store *store)
{
    char text[PATH_MAX + 80];

    snprintf(text, sizeof text, "made a file store in %s, for locks on this machine only",
             store->directory.path);
    store->host.warn(store->host.context, text);
}

static int file_open(struct url *url, const struct engine_host *host,
                     struct engine_store **ret_store, char *ret_where, struct error_text *err)
{
    struct engine_store *store = calloc(1, sizeof *store);
    int result;

    if (!store)
        return error_set(err, HF_ENOMEM, "out of memory");
    result = directory_open(url, &store->directory, err);
    if (result != HF_OK) {
        free(store);
        return result;
    }
    store->host = *host;
    store->pid = getpid();
    store->tokens_fd = -1;
    store->keys.fd = store->keys.locks_fd = -1;
    store->inotify_fd = -1;
    store->directory_watch = -1;
    list_init(&store->held);
    list_init(&store->waiting);
    for (int i = 0; i < IDLE_FILES_MAX; i++)
        store->idle[i].fd = -1;
    pthread_mutex_init(&store->mutex, NULL);
    pthread_mutex_init(&store->tokens_mutex, NULL);
    snprintf(store->tokens_path, sizeof store->tokens_path, "%s/%s", store->directory.path,
             FILE_STATE_NAME);
    snprintf(ret_where, HF_URL_MAX + 1, "%s", store->directory.path);
    if (store->directory.made)
        say_made(store);
    *ret_store = store;
    return HF_OK;
}

static bool file_unmade(struct url *url, char *ret_where)
{
    return directory_is_unmade(url, ret_where);
}

static void file_close(struct engine_store *store)
{
    /* In the child of a fork lock files and token file are closed. What is mapped stays so: a thread of
     * the parent may have been about to unmap it, and something else be there by now. */
    for (int i = 0; i < IDLE_FILES_MAX && !store->forked; i++)
        lockfile_close(&store->idle[i]);
    if (store->tokens.page && !store->forked)
        munmap(store->tokens.page, TOKENS_PAGE);
    if (store->tokens_fd >= 0)
        forks_close(store->tokens_fd);
    if (store->inotify_fd >= 0)
        close(store->inotify_fd);
    directory_close(&store->keys);
    directory_close(&store->directory);
    if (!store->forked) {
        pthread_mutex_destroy(&store->mutex);
        pthread_mutex_destroy(&store->tokens_mutex);
    }
    free(store);
}

static void file_after_fork(struct engine_store *store)
{
    store->forked = true; /* forks.c has closed what was opened there, or will */
    store->tokens_fd = -1;
}

const struct engine file_engine = {
    .abi = ENGINE_ABI,
    .traits =
        {
            .size = sizeof(hf_store_info),
            .scheme = "file",
            .url = "file:DIR",
            .features = HF_HAS_SHARED | HF_HAS_PERMITS | HF_HAS_PASS_FD | HF_HAS_BREAK |
                        HF_HAS_PUSH | HF_HAS_FLOOR | HF_HAS_ONCE,
            .exclusion = HF_STRICT,
            .tokens = HF_STRICT,
            .survives = "survives the death of the holder (free at once), and a reboot",
            .wakes = "woken by whoever releases the lock; not in order",
        },
    .open = file_open,
    .unmade = file_unmade,
    .close = file_close,
    .after_fork = file_after_fork,
    .id = file_id,
    .acquire = file_acquire,
    .wait = file_wait,
    .wake = file_wake,
    .abandon = file_abandon,
    .release = file_release,
    .dispose = file_dispose,
    .pass_fd = file_pass_fd,
    .poll_fd = file_poll_fd,
    .process = file_process,
    .show = file_show,
    .list = file_list,
    .check = file_check,
    .break_name = file_break,
    .floor = file_floor,
    .finish = file_finish,
    .once_read = file_once_read,
};
