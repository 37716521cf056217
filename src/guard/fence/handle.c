/* handle.c: opening and closing a fence, and what a fork does to it.
 *
 * Before a fork we take the list of fences and every fence's mutex; a descriptor that may lock
 * something is opened and noted under that mutex. The child closes all of those, so that it cannot
 * keep alive what the parent is inside of, and its calls answer HF_EFORK. What it may still do is free
 * memory. The map is left as it is: a child may not even close it. */
#include "base/failure.h"
#include "base/filesize.h"
#include "base/modules.h"
#include "guard/fence/fence.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OPTIONS_TAIL_MAX 4096 /* anything longer is a size that was never initialised */

static pthread_mutex_t fences_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct list fences = {&fences, &fences};
static _Atomic uint32_t fork_generation;
static int fork_errno;

/* ---- fork ------------------------------------------------------------------------------------ */

static void before_fork(void)
{
    pthread_mutex_lock(&fences_mutex);
    LIST_EACH(node, &fences)
    {
        pthread_mutex_lock(&LIST_ENTRY(node, hf_fence, node)->mutex);
    }
}

static void after_fork(void)
{
    LIST_EACH(node, &fences)
    {
        pthread_mutex_unlock(&LIST_ENTRY(node, hf_fence, node)->mutex);
    }
    pthread_mutex_unlock(&fences_mutex);
}

void fence_drop_descriptor(int *fd)
{
    int old = *fd;

    *fd = -1;
    if (old >= 0)
        close(old);
}

static void after_fork_in_child(void)
{
    atomic_fetch_add(&fork_generation, 1);
    LIST_EACH(node, &fences)
    {
        hf_fence *fence = LIST_ENTRY(node, hf_fence, node);

        LIST_EACH(entry, &fence->entries)
        {
            fence_drop_descriptor(&LIST_ENTRY(entry, hf_fence_entry, node)->fd);
        }
    }
    after_fork();
}

static void watch_forks(void)
{
    fork_errno = pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

bool fence_forked(const hf_fence *fence)
{
    return fence->generation != atomic_load_explicit(&fork_generation, memory_order_relaxed);
}

/* ---- opening and closing --------------------------------------------------------------------- */

static int find_provider(const struct marks_provider **ret_provider, struct error_text *err)
{
    static const struct module module = {.name = "fence",
                                         .needed_by = "a fence needs",
                                         .library = "LMDB (liblmdb-dev)",
                                         .symbol = MARKS_MODULE_SYMBOL};
    /* Two threads may both find it empty: the second load gives the same table. A failure is not
     * kept, since the module may be installed while the program runs. */
    static const struct marks_provider *_Atomic loaded;
    const struct marks_provider *provider = atomic_load_explicit(&loaded, memory_order_acquire);
    marks_module_fn *get;
    int result;

    if (!provider) {
        result = module_symbol(&module, (void **)&get, err);
        if (result != HF_OK)
            return result;
        provider = get();
        if (!provider || provider->abi != MARKS_ABI) {
            module_misfit(&module, err);
            return HF_EMODULE;
        }
        atomic_store_explicit(&loaded, provider, memory_order_release);
    }
    *ret_provider = provider;
    return HF_OK;
}

/* A program built against an older header hands in a shorter struct, one built against a newer
 * header a longer one: fine if what we do not know is zero. */
static int copy_options(const hf_fence_options *from, hf_fence_options *ret_options,
                        struct error_text *err)
{
    hf_fence_options options = HF_FENCE_OPTIONS_INIT;
    size_t size = from ? from->size : 0;

    if (from && (size < sizeof size || size > sizeof options + OPTIONS_TAIL_MAX))
        return error_set(err, HF_EINVAL,
                         "hf_fence_options: the size field is not set; initialise with "
                         "HF_FENCE_OPTIONS_INIT");
    for (size_t i = sizeof options; i < size; i++)
        if (((const unsigned char *)from)[i])
            return error_set(err, HF_EINVAL,
                             "hf_fence_options: uses something that this version of the library "
                             "does not know");
    if (from)
        memcpy(&options, from, size < sizeof options ? size : sizeof options);
    if (options.bytes_max == 0)
        options.bytes_max =
            HF_FENCE_BYTES_DEFAULT < SIZE_MAX / 8 ? HF_FENCE_BYTES_DEFAULT : SIZE_MAX / 8;
    if (options.bytes_max < HF_FENCE_BYTES_MIN || options.bytes_max > HF_FENCE_BYTES_MAX ||
        options.bytes_max > SIZE_MAX / 2)
        return error_set(err, HF_EINVAL, "bytes_max of %llu: must be from 1 MiB to 1 TiB",
                         (unsigned long long)options.bytes_max);
    if (options.patience_ms == 0)
        options.patience_ms = HF_FENCE_PATIENCE_MS;
    if (options.patience_ms < 0 || options.patience_ms > HF_DURATION_MAX_MS)
        return error_set(err, HF_EINVAL, "a patience of %lld ms: must be from 0 to a year",
                         (long long)options.patience_ms);
    *ret_options = options;
    return HF_OK;
}

/* LMDB makes its files by itself, but not with the directory's permissions and owner. Nor may we open
 * them: closing any descriptor of its lock file gives up the locks of all LMDB in this process. */
static int make_map_files(const struct fence_directory *directory, struct error_text *err)
{
    int result = fence_directory_make(directory, "data.mdb", err);

    if (result == HF_OK)
        result = fence_directory_make(directory, "lock.mdb", err);
    if (result == HF_OK)
        result = fence_directory_sync(directory, err);
    return result;
}

static int open_parts(hf_fence *fence, const char *path, const hf_fence_options *options,
                      struct error_text *err)
{
    struct filesize_guard guard;
    int result =
        fence_directory_open(path, options->allow, options->existing != 0, &fence->directory, err);

    if (result == HF_OK)
        result = fence_directory_check_locks(&fence->directory, err);
    if (result == HF_OK)
        result = keys_open(&fence->keys, &fence->directory, err);
    if (result == HF_OK)
        result = make_map_files(&fence->directory, err);
    if (result != HF_OK)
        return result;
    filesize_enter(&guard);
    result = fence->provider->open(path, options->bytes_max, &fence->marks, err);
    filesize_leave(&guard);
    return result;
}

static void fence_free(hf_fence *fence)
{
    bool forked = fence_forked(fence);

    LIST_EACH_SAFE(node, &fence->entries)
    {
        hf_fence_end(LIST_ENTRY(node, hf_fence_entry, node));
    }
    pthread_mutex_lock(&fences_mutex);
    list_remove(&fence->node);
    pthread_mutex_unlock(&fences_mutex);
    if (fence->marks && !forked)
        fence->provider->close(fence->marks);
    keys_close(&fence->keys);
    fence_directory_close(&fence->directory);
    pthread_mutex_destroy(&fence->mutex);
    free(fence);
}

static int fence_open(const char *path, const hf_fence_options *options, hf_fence **ret_fence,
                      struct error_text *err)
{
    hf_fence *fence = calloc(1, sizeof *fence);
    int result;

    if (!fence)
        return error_set(err, HF_ENOMEM, "out of memory");
    list_init(&fence->node);
    list_init(&fence->entries);
    pthread_mutex_init(&fence->mutex, NULL);
    fence->generation = atomic_load(&fork_generation);
    fence->directory.fd = -1;
    fence->patience_ms = options->patience_ms;
    result = find_provider(&fence->provider, err);
    if (result == HF_OK)
        result = open_parts(fence, path, options, err);
    if (result != HF_OK) {
        fence_free(fence);
        return result;
    }
    pthread_mutex_lock(&fences_mutex);
    list_append(&fences, &fence->node);
    pthread_mutex_unlock(&fences_mutex);
    *ret_fence = fence;
    return HF_OK;
}

int hf_fence_open(const char *path, const hf_fence_options *options, hf_fence **ret_fence)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct error_text err = {""};
    hf_fence_options known;
    int result = copy_options(options, &known, &err);

    if (result == HF_OK && !ret_fence)
        result = error_set(&err, HF_EINVAL, "hf_fence_open: nowhere to put the fence");
    pthread_once(&once, watch_forks);
    if (result == HF_OK && fork_errno)
        result = error_set_errno(&err, HF_ENOMEM, fork_errno, "cannot watch for forks");
    if (result == HF_OK)
        result = fence_open(path, &known, ret_fence, &err);
    return failure_keep(result, &err);
}

void hf_fence_close(hf_fence *fence)
{
    if (fence)
        fence_free(fence);
}
