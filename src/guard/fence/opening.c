/* opening.c: opening and closing a fence's marks. A process may have LMDB's file open only once, so
 * there is a list of what is open, and whoever comes second shares it. */
#include "guard/fence/lmdb.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t opened_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct list opened = {&opened, &opened};

/* ---- fork ------------------------------------------------------------------------------------ */

static void before_fork(void)
{
    pthread_mutex_lock(&opened_mutex);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&opened_mutex);
}

/* The child must not touch what it inherited, not even to close it: closing the lock file would give
 * up the locks of what the child opens itself. */
static void after_fork_in_child(void)
{
    LIST_EACH(node, &opened)
    {
        LIST_ENTRY(node, struct marks, node)->inherited = true;
    }
    pthread_mutex_unlock(&opened_mutex);
}

static int fork_errno;

static void watch_forks(void)
{
    fork_errno = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

/* ---- opening and closing --------------------------------------------------------------------- */

static struct marks *find_opened(const struct stat *st)
{
    LIST_EACH(node, &opened)
    {
        struct marks *marks = LIST_ENTRY(node, struct marks, node);

        if (marks->device == st->st_dev && marks->inode == st->st_ino && !marks->inherited)
            return marks;
    }
    return NULL;
}

static void marks_free(struct marks *marks)
{
    if (marks->env) {
        lmdb_drop_idle(marks);
        mdb_env_close(marks->env);
    }
    if (marks->directory >= 0)
        close(marks->directory);
    pthread_mutex_destroy(&marks->mutex);
    pthread_rwlock_destroy(&marks->resizing);
    free(marks->path);
    free(marks);
}

static struct marks *marks_new(const char *path, const struct stat *st)
{
    struct marks *marks = calloc(1, sizeof *marks);
    pthread_rwlockattr_t attributes;

    if (!marks)
        return NULL;
    pthread_rwlockattr_init(&attributes);
    /* Else readers who come one after the other would keep the map from ever being resized. */
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&marks->resizing, &attributes);
    pthread_rwlockattr_destroy(&attributes);
    pthread_mutex_init(&marks->mutex, NULL);
    list_init(&marks->node);
    marks->directory = -1;
    marks->users = 1;
    marks->device = st->st_dev;
    marks->inode = st->st_ino;
    marks->path = strdup(path);
    if (!marks->path) {
        marks_free(marks);
        return NULL;
    }
    return marks;
}

/* LMDB 0.9 leaves its file open across exec. */
static int close_on_exec(const struct marks *marks)
{
    int fd, code = mdb_env_get_fd(marks->env, &fd);

    if (code == MDB_SUCCESS && fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
        code = errno;
    return code;
}

static int open_environment(struct marks *marks, uint64_t bytes_max)
{
    MDB_txn *txn;
    int code = mdb_env_create(&marks->env);

    if (code != MDB_SUCCESS)
        return code;
    code = mdb_env_set_mapsize(marks->env, (size_t)bytes_max);
    if (code == MDB_SUCCESS)
        code = mdb_env_set_maxreaders(marks->env, READERS_MAX);
    if (code == MDB_SUCCESS)
        code = mdb_env_open(marks->env, marks->path,
                            SWITCHED(SWITCH_FENCE_NOT_SYNCED) ? MDB_NOTLS | MDB_NOSYNC : MDB_NOTLS,
                            0600);
    if (code == MDB_SUCCESS)
        code = close_on_exec(marks);
    if (code != MDB_SUCCESS)
        return code;
    lmdb_forget_dead_readers(marks);
    /* Whoever wrote last may have been killed before it knew that the disk has it. */
    code = mdb_env_sync(marks->env, 1);
    if (code == MDB_SUCCESS)
        code = mdb_txn_begin(marks->env, NULL, MDB_RDONLY, &txn);
    if (code == MDB_MAP_RESIZED) {
        code = mdb_env_set_mapsize(marks->env, 0);
        if (code == MDB_SUCCESS)
            code = mdb_txn_begin(marks->env, NULL, MDB_RDONLY, &txn);
    }
    if (code != MDB_SUCCESS)
        return code;
    code = mdb_dbi_open(txn, NULL, 0, &marks->dbi);
    if (code != MDB_SUCCESS)
        mdb_txn_abort(txn);
    else
        code = mdb_txn_commit(txn); /* so that the handle stays */
    return code;
}

/* 0: there is none. */
static ino_t file_inode(const struct marks *marks, size_t i)
{
    static const char *const names[FILES] = {"data.mdb", "lock.mdb"};
    struct stat st;

    return fstatat(marks->directory, names[i], &st, AT_SYMLINK_NOFOLLOW) == 0 ? st.st_ino : 0;
}

/* An errno, or 0. */
static int note_files(struct marks *marks)
{
    marks->directory = open(marks->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (marks->directory < 0)
        return errno;
    for (size_t i = 0; i < FILES; i++)
        marks->files[i] = file_inode(marks, i);
    return 0;
}

int lmdb_check_files(const struct marks *marks, struct error_text *err)
{
    for (size_t i = 0; i < FILES; i++)
        if (marks->files[i] == 0 || file_inode(marks, i) != marks->files[i])
            return error_set(err, HF_EREFUSED,
                             "the files of the fence in %s were removed or replaced while it was "
                             "open: put them back, or close it and open it again",
                             marks->path);
    return HF_OK;
}

static int share_opened(struct marks *marks, uint64_t bytes_max, struct error_text *err)
{
    MDB_envinfo info;
    int code = mdb_env_info(marks->env, &info);

    if (code == MDB_SUCCESS && info.me_mapsize < bytes_max)
        code = lmdb_resize(marks, (size_t)bytes_max);
    if (code != MDB_SUCCESS)
        return lmdb_explain(marks, code, "open", err);
    marks->users++;
    return HF_OK;
}

static int open_new(const char *path, const struct stat *st, uint64_t bytes_max,
                    struct marks **ret_marks, struct error_text *err)
{
    struct marks *marks = marks_new(path, st);
    int code;

    if (!marks)
        return error_set(err, HF_ENOMEM, "out of memory");
    code = note_files(marks);
    if (code == 0)
        code = open_environment(marks, bytes_max);
    if (code != MDB_SUCCESS) {
        int result = lmdb_explain(marks, code, "open", err);

        marks_free(marks);
        return result;
    }
    list_append(&opened, &marks->node);
    *ret_marks = marks;
    return HF_OK;
}

int lmdb_open(const char *path, uint64_t bytes_max, struct marks **ret_marks,
              struct error_text *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct marks *marks;
    struct stat st;
    int result;

    pthread_once(&once, watch_forks);
    if (fork_errno)
        return error_set_errno(err, HF_ENOMEM, fork_errno, "cannot watch for forks");
    if (stat(path, &st) < 0)
        return error_set_errno(err, HF_EREFUSED, errno, "cannot look at %s", path);
    pthread_mutex_lock(&opened_mutex);
    marks = find_opened(&st);
    if (!marks) {
        result = open_new(path, &st, bytes_max, &marks, err);
    } else {
        result = share_opened(marks, bytes_max, err);
    }
    pthread_mutex_unlock(&opened_mutex);
    if (result == HF_OK)
        *ret_marks = marks;
    return result;
}

void lmdb_close(struct marks *marks)
{
    pthread_mutex_lock(&opened_mutex);
    if (--marks->users == 0) {
        list_remove(&marks->node);
        marks_free(marks);
    }
    pthread_mutex_unlock(&opened_mutex);
}
