/* descriptors.c: which descriptors of the process are the library's.
 *
 * libzookeeper makes its own without FD_CLOEXEC, so that the programs that the process runs would inherit them; it waits for
 * most of a session for a server that has stopped; and it tells nobody which descriptors are its own. So we have to find
 * them, in a process where the host program, too, has sockets to the same servers, and pipes.
 *
 * The library's I/O thread shows them. When it has nothing to do, it sleeps in poll(2) with the read end of its pipe and,
 * if there is one, its connection. With which arguments a thread sleeps, the kernel tells in /proc/self/task/ID/syscall, and
 * the array that they point to is in our memory. Nothing is concluded from addresses or counts, no matter how many sessions
 * there are, and whatever that thread does not wait for is left alone.
 *
 * Which thread it is, its name says: a thread is born with the name of the one that made it, and sessions.c makes each
 * session in a thread of its own, with a name that no other thread has.
 *
 * A thread that is awake shows nothing: it is looked at again, after a moment by those who can wait, and with the next touch
 * of the session. One whose server has stopped sleeps. Where the kernel shows nothing at all (some sandboxes), connections
 * are left to the library's patience, and its descriptors to the programs that are run. */
#include "engines/zookeeper/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NAME_FORMAT "holdfast-%06x" /* ZK_THREAD_NAME_MAX bytes with its NUL */
#define NAME_MASK 0xffffffu
#define AWAITED_MAX 2 /* the pipe, and the connection */
#define LOOKS_MAX 20  /* at a thread that is awake, by those who can wait */
#define LISTS_MAX 20  /* of threads, until the library's are among them */
#define LOOK_PAUSE_NS 1000000
#define LINK_MAX_BYTES 64 /* a longer one is no pipe's */

/* Calls fn for each number in a directory of /proc/self. */
static void each_number(const char *path, void (*fn)(int number, void *arg), void *arg)
{
    DIR *dir = opendir(path);
    struct dirent *entry;

    if (!dir)
        return;
    while ((entry = readdir(dir)))
        if (entry->d_name[0] != '.')
            fn((int)strtol(entry->d_name, NULL, 10), arg);
    closedir(dir);
}

/* ---- threads --------------------------------------------------------------------------------- */

/* Of a file of /proc/self/task, its first bytes. False: it cannot be read. */
static bool read_of_thread(pid_t thread, const char *file, char *ret_text, size_t size)
{
    char path[64];
    ssize_t got = -1;
    int fd;

    snprintf(path, sizeof path, "/proc/self/task/%d/%s", (int)thread, file);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        got = read(fd, ret_text, size - 1);
        close(fd);
    }
    ret_text[got > 0 ? got : 0] = '\0';
    return got > 0;
}

static bool has_name(pid_t thread, const char *name)
{
    char text[ZK_THREAD_NAME_MAX + 1]; /* with its newline */
    size_t length = strlen(name);

    return read_of_thread(thread, "comm", text, sizeof text) && strncmp(text, name, length) == 0 &&
           text[length] == '\n';
}

void descriptors_name_thread(struct session *session)
{
    static _Atomic uint32_t named; /* in this process */

    snprintf(session->thread_name, sizeof session->thread_name, NAME_FORMAT,
             atomic_fetch_add(&named, 1) & NAME_MASK);
    pthread_setname_np(pthread_self(), session->thread_name);
}

struct finding {
    const char *name;
    pid_t maker; /* who gave them their name has it, too; 0: has ended */
    pid_t threads[ZK_THREADS];
    int count;
};

static void note_thread(int thread, void *arg)
{
    struct finding *finding = arg;

    if (thread == finding->maker || !has_name(thread, finding->name))
        return;
    if (finding->count < ZK_THREADS)
        finding->threads[finding->count] = thread;
    finding->count++;
}

static bool find_threads(struct session *session, pid_t maker)
{
    struct finding finding = {.name = session->thread_name, .maker = maker};

    each_number("/proc/self/task", note_thread, &finding);
    if (finding.count != ZK_THREADS)
        return false;
    pthread_mutex_lock(&session->store->mutex);
    if (!atomic_load(&session->threads_known))
        memcpy(session->threads, finding.threads, sizeof session->threads);
    atomic_store(&session->threads_known, true);
    pthread_mutex_unlock(&session->store->mutex);
    return true;
}

/* While an older thread ends, the kernel's list may leave out younger ones: so it is read again until both are there. On a busy machine that may
 * be later than anybody waits for here: descriptors_close_on_exec goes on. */
void descriptors_find_threads(struct session *session)
{
    for (int i = 0; i < LISTS_MAX && !find_threads(session, gettid()); i++)
        nanosleep(&(struct timespec){.tv_nsec = LOOK_PAUSE_NS}, NULL);
}

/* ---- what a thread waits for ----------------------------------------------------------------- */

struct awaited {
    int pipe;
    int connection; /* -1: there is none */
};

enum look { LOOK_FOUND, LOOK_AWAKE, LOOK_CANNOT };

static bool read_memory(uint64_t address, void *ret_bytes, size_t size)
{
    int fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    bool read_all;

    if (fd < 0)
        return false;
    read_all = pread(fd, ret_bytes, size, (off_t)address) == (ssize_t)size;
    close(fd);
    return read_all;
}

static bool is_kind(int fd, mode_t kind)
{
    struct stat about;

    return fstat(fd, &about) == 0 && (about.st_mode & S_IFMT) == kind;
}

/* The system call is not compared: in an emulator it has the number of another machine. What is there must be what the
 * library waits for, whatever the call. */
static enum look look_at(pid_t thread, const char *name, struct awaited *ret_awaited)
{
    struct pollfd fds[AWAITED_MAX] = {0};
    uint64_t address, count;
    char text[128], *at;

    if (!has_name(thread, name) || !read_of_thread(thread, "syscall", text, sizeof text))
        return LOOK_CANNOT;
    strtoull(text, &at, 10); /* its number; "running", or "-1" outside of one */
    if (at == text || text[0] == '-')
        return LOOK_AWAKE;
    address = strtoull(at, &at, 16);
    count = strtoull(at, &at, 16);
    if (count < 1 || count > AWAITED_MAX || !read_memory(address, fds, count * sizeof *fds))
        return LOOK_AWAKE;
    if (!is_kind(fds[0].fd, S_IFIFO) || !(fcntl(fds[0].fd, F_GETFL) & O_NONBLOCK) ||
        (count == 2 && !is_kind(fds[1].fd, S_IFSOCK)))
        return LOOK_AWAKE;
    *ret_awaited = (struct awaited){.pipe = fds[0].fd, .connection = count == 2 ? fds[1].fd : -1};
    return LOOK_FOUND;
}

/* One of the two waits for answers, the other for something to do. */
static enum look look_once(struct session *session, struct awaited *ret_awaited)
{
    enum look look = LOOK_CANNOT;

    for (int i = 0; i < ZK_THREADS && atomic_load(&session->threads_known); i++) {
        enum look its = look_at(session->threads[i], session->thread_name, ret_awaited);

        if (its == LOOK_FOUND)
            return LOOK_FOUND;
        if (its == LOOK_AWAKE)
            look = LOOK_AWAKE;
    }
    return look;
}

static bool is_same_file(int fd, int other)
{
    struct stat one, two;

    return fstat(fd, &one) == 0 && fstat(other, &two) == 0 && one.st_dev == two.st_dev &&
           one.st_ino == two.st_ino;
}

/* A copy of the connection's descriptor. While we look, the library may close it, and somebody else get its number: so it is
 * the connection's if the thread waits for that number after it was copied, too, and it still is what was copied. */
static int copy_connection(struct session *session, struct awaited *ret_awaited,
                           enum look *ret_look)
{
    struct awaited again;
    int fd;

    *ret_look = look_once(session, ret_awaited);
    if (*ret_look != LOOK_FOUND || ret_awaited->connection < 0)
        return -1;
    fd = fcntl(ret_awaited->connection, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    *ret_look = look_once(session, &again);
    if (*ret_look == LOOK_FOUND && again.connection == ret_awaited->connection &&
        is_same_file(fd, again.connection))
        return fd;
    close(fd);
    return -1;
}

static int find_connection(struct session *session, int looks, struct awaited *ret_awaited)
{
    for (int i = 0;; i++) {
        enum look look;
        int fd = copy_connection(session, ret_awaited, &look);

        if (fd >= 0 || look == LOOK_CANNOT || i + 1 >= looks)
            return fd;
        nanosleep(&(struct timespec){.tv_nsec = LOOK_PAUSE_NS}, NULL);
    }
}

int descriptors_connection(struct session *session)
{
    struct awaited awaited;

    return find_connection(session, LOOKS_MAX, &awaited);
}

/* ---- close-on-exec --------------------------------------------------------------------------- */

/* What it is open to, as the kernel calls it: "pipe:[4711]". The others' descriptors are not touched, not even by fstat. */
static bool read_link(int fd, char ret_text[LINK_MAX_BYTES])
{
    char path[32];
    ssize_t got;

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    got = readlink(path, ret_text, LINK_MAX_BYTES - 1);
    ret_text[got > 0 ? got : 0] = '\0';
    return got > 0;
}

/* Both ends of a pipe have one name, and nobody but the library has either. */
static void close_end_on_exec(int fd, void *arg)
{
    char text[LINK_MAX_BYTES];

    if (read_link(fd, text) && strcmp(text, arg) == 0)
        fcntl(fd, F_SETFD, FD_CLOEXEC);
}

static void close_pipe_on_exec(int pipe)
{
    char text[LINK_MAX_BYTES];

    if (!(fcntl(pipe, F_GETFD) & FD_CLOEXEC) && read_link(pipe, text))
        each_number("/proc/self/fd", close_end_on_exec, text);
}

/* Before the maker has ended, that one looks for them. */
static bool threads_are_known(struct session *session)
{
    return atomic_load(&session->threads_known) ||
           (atomic_load(&session->maker_ended) && find_threads(session, 0));
}

void descriptors_close_on_exec(struct session *session, bool may_wait)
{
    struct engine_store *store = session->store;
    struct awaited awaited;
    uint32_t connections;
    int looks, fd;
    bool due;

    pthread_mutex_lock(&store->mutex);
    connections = session->connections;
    due = session->state == ZK_CONNECTED && session->closed_on_exec != connections;
    /* Once for each connection: it may be one that never shows itself. */
    looks = may_wait && session->waited_for != connections ? LOOKS_MAX : 1;
    if (due && may_wait)
        session->waited_for = connections;
    pthread_mutex_unlock(&store->mutex);
    if (!due || !threads_are_known(session))
        return;
    fd = find_connection(session, looks, &awaited);
    if (fd < 0)
        return;
    fcntl(awaited.connection, F_SETFD, FD_CLOEXEC);
    close(fd);
    close_pipe_on_exec(awaited.pipe);
    pthread_mutex_lock(&store->mutex);
    session->closed_on_exec = connections;
    pthread_mutex_unlock(&store->mutex);
}
