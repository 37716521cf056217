/* fence_user.c: a process that uses a fence, for the campaigns of test_fence_campaigns.py.
 *
 *     fence-user hold URL NAME TTL FENCE KEY FILE WHEN WHAT    one holder of a lock that changes a file
 *     fence-user play FENCE KEYS FIRST STEP                    enters and admits until it is killed
 *     fence-user enter FENCE KEYS TOKEN                        enters every key once, without waiting
 *     fence-user count FENCE FILE TIMES                        adds one to a number in a file, inside a key
 *     fence-user storm FENCE PROCESSES THREADS TRIES           stale tokens by the thousand, fresh ones between
 */
#include <errno.h>
#include <fcntl.h>
#include <holdfast/guard.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS 60000
#define KEY_SIZE 32
#define BATCH 8
#define STORM_KEYS 32
#define STORM_BATCH 16
#define FRESHENERS 2
#define FRESH_MIN 100
#define THREADS_MAX 64
#define PROCESSES_MAX 64

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "fence-user: %s: %s\n", what, hf_error());
    exit(1);
}

/* In one write, so that a kill leaves no half line. */
static void tell(const char *format, ...)
{
    char line[1024];
    va_list list;
    int length;

    va_start(list, format);
    length = vsnprintf(line, sizeof line - 1, format, list);
    va_end(list);
    line[length++] = '\n';
    if (write(STDOUT_FILENO, line, (size_t)length) != length)
        exit(1);
}

static hf_fence *open_fence(const char *path)
{
    hf_fence *fence;

    if (hf_fence_open(path, NULL, &fence) != HF_OK)
        die("open");
    return fence;
}

static uint64_t number(const char *text)
{
    return strtoull(text, NULL, 10);
}

/* ---- a file as the resource ------------------------------------------------------------------ */

static void read_file(const char *path, char ret_text[64])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, ret_text, 63);

    if (length < 0)
        die(path);
    ret_text[length] = '\0';
    close(fd);
}

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);

    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        die(path);
    close(fd);
}

/* ---- hold ------------------------------------------------------------------------------------ */

struct holder {
    const char *url, *name, *fence, *key, *file;
    bool enters;      /* before it reads; else the token is shown with the write */
    const char *what; /* "=text" or "+5" */
    int64_t ttl_ms;
};

static void await_go(void)
{
    char line[16];

    if (!fgets(line, sizeof line, stdin))
        exit(1);
}

/* True: it may go on. */
static bool passes(int result)
{
    if (result == HF_OK)
        return true;
    tell(result == HF_ESTALE ? "stale %s" : "failed %s", hf_error());
    return false;
}

static void change(const struct holder *holder, const char *seen)
{
    char text[64];

    if (holder->what[0] == '=')
        snprintf(text, sizeof text, "%s", holder->what + 1);
    else
        snprintf(text, sizeof text, "%" PRIu64, number(seen) + number(holder->what + 1));
    write_file(holder->file, text);
    tell("wrote %s", text);
}

static void work(const struct holder *holder, hf_fence *fence, uint64_t token)
{
    hf_fence_entry *entry = NULL;
    char seen[64];

    await_go();
    if (fence && holder->enters) {
        if (!passes(hf_fence_begin(fence, holder->key, token, HF_NOT_OLDER, WAIT_MS, &entry, NULL)))
            return;
        tell("inside");
    }
    read_file(holder->file, seen);
    tell("read %s", seen);
    await_go();
    if (!fence || holder->enters ||
        passes(hf_fence_admit(fence, holder->key, token, HF_NOT_OLDER, NULL)))
        change(holder, seen);
    hf_fence_end(entry);
}

static int hold(char **words)
{
    struct holder holder = {.url = words[0],
                            .name = words[1],
                            .ttl_ms = (int64_t)number(words[2]),
                            .fence = words[3],
                            .key = words[4],
                            .file = words[5],
                            .enters = strcmp(words[6], "enter") == 0,
                            .what = words[7]};
    hf_options options = HF_OPTIONS_INIT;
    hf_fence *fence = strcmp(holder.fence, "-") == 0 ? NULL : open_fence(holder.fence);
    hf_store *store;
    hf_lock *lock;

    options.ttl_ms = holder.ttl_ms;
    options.wait_ms = WAIT_MS;
    if (hf_open(holder.url, &store) != HF_OK ||
        hf_acquire(store, holder.name, &options, &lock) != HF_OK)
        die("acquire");
    tell("held %" PRIu64, hf_lock_token(lock));
    work(&holder, fence, hf_lock_token(lock));
    hf_release(lock);
    hf_close(store);
    hf_fence_close(fence);
    return 0;
}

/* ---- play ------------------------------------------------------------------------------------ */

static void key_name(uint64_t key, char ret_name[KEY_SIZE])
{
    snprintf(ret_name, KEY_SIZE, "key/%03" PRIu64, key);
}

static void pause_us(long us)
{
    nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

static void play_enter(hf_fence *fence, uint64_t keys, uint64_t token)
{
    hf_fence_entry *entry;
    char name[KEY_SIZE];
    int result;

    key_name((uint64_t)random() % keys, name);
    result = hf_fence_begin(fence, name, token, HF_NOT_OLDER, WAIT_MS, &entry, NULL);
    if (result == HF_ESTALE)
        return;
    if (result != HF_OK)
        die("begin");
    tell("%s %" PRIu64, name, token);
    if (random() % 2)
        pause_us(random() % 1000);
    hf_fence_end(entry);
}

static void play_admit(hf_fence *fence, uint64_t keys, uint64_t token)
{
    hf_fence_item items[BATCH];
    char names[BATCH][KEY_SIZE];

    for (int i = 0; i < BATCH; i++) {
        key_name((uint64_t)random() % keys, names[i]);
        items[i] = (hf_fence_item){names[i], token, 0, 0};
    }
    if (hf_fence_admit_many(fence, items, BATCH, HF_NOT_OLDER) != HF_OK)
        die("admit_many");
    for (int i = 0; i < BATCH; i++)
        if (items[i].result == HF_OK)
            tell("%s %" PRIu64, names[i], token);
}

static _Noreturn void play_on(hf_fence *fence, uint64_t keys, uint64_t token, uint64_t step)
{
    for (;; token += step) {
        if (random() % 2)
            play_enter(fence, keys, token);
        else
            play_admit(fence, keys, token);
    }
}

static int play(char **words)
{
    uint64_t keys = number(words[1]), token = number(words[2]), step = number(words[3]);
    hf_fence *fence = open_fence(words[0]);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    srandom((unsigned)token ^ (unsigned)getpid());
    play_on(fence, keys, token, step);
}

static int enter_all(char **words)
{
    uint64_t keys = number(words[1]), token = number(words[2]);
    hf_fence *fence = open_fence(words[0]);

    for (uint64_t key = 0; key < keys; key++) {
        hf_fence_entry *entry;
        uint64_t mark;
        char name[KEY_SIZE];

        key_name(key, name);
        if (hf_fence_begin(fence, name, token, HF_NOT_OLDER, 0, &entry, &mark) != HF_OK)
            die(name);
        tell("%s %" PRIu64, name, mark);
        hf_fence_end(entry);
    }
    hf_fence_close(fence);
    return 0;
}

/* ---- count ----------------------------------------------------------------------------------- */

static int count(char **words)
{
    hf_fence *fence = open_fence(words[0]);
    uint64_t times = number(words[2]);

    for (uint64_t i = 0; i < times; i++) {
        hf_fence_entry *entry;
        char text[64];

        if (hf_fence_begin(fence, "count", 1, HF_NOT_OLDER, WAIT_MS, &entry, NULL) != HF_OK)
            die("begin");
        read_file(words[1], text);
        sched_yield();
        snprintf(text, sizeof text, "%" PRIu64, number(text) + 1);
        write_file(words[1], text);
        hf_fence_end(entry);
    }
    hf_fence_close(fence);
    return 0;
}

/* ---- storm ----------------------------------------------------------------------------------- */

static struct storm {
    _Atomic uint64_t seen[STORM_KEYS]; /* a token that the key has accepted */
    _Atomic uint64_t stale, accepted, fresh, refused;
    _Atomic bool over;
} * storm;

static uint64_t tries_each;

/* What the token was compared with must explain why it was refused. */
static void judge_stale(int result, uint64_t token, uint64_t mark, int mode)
{
    atomic_fetch_add(&storm->stale, 1);
    if (result == HF_ESTALE && (mark > token || (mark == token && mode == HF_NEWER)))
        return;
    atomic_fetch_add(&storm->accepted, 1);
    fprintf(stderr, "token %" PRIu64 ", mark %" PRIu64 ": %s\n", token, mark,
            hf_result_name(result));
}

static uint64_t stale_token(int key, int mode, unsigned *seed)
{
    uint64_t seen = atomic_load(&storm->seen[key]);
    uint64_t below = mode == HF_NEWER ? 0 : 1;

    return seen - below - (uint64_t)rand_r(seed) % 3;
}

static void knock(hf_fence *fence, int mode, unsigned *seed)
{
    int key = rand_r(seed) % STORM_KEYS;
    uint64_t token = stale_token(key, mode, seed), mark = 0;
    hf_fence_entry *entry = NULL;
    char name[KEY_SIZE];
    int result;

    key_name((uint64_t)key, name);
    if (rand_r(seed) % 8 == 0)
        result = hf_fence_begin(fence, name, token, mode, WAIT_MS, &entry, &mark);
    else
        result = hf_fence_admit(fence, name, token, mode, &mark);
    judge_stale(result, token, mark, mode);
    hf_fence_end(entry);
}

static void knock_many(hf_fence *fence, int mode, unsigned *seed)
{
    hf_fence_item items[STORM_BATCH];
    char names[STORM_BATCH][KEY_SIZE];

    for (int i = 0; i < STORM_BATCH; i++) {
        int key = rand_r(seed) % STORM_KEYS;

        key_name((uint64_t)key, names[i]);
        items[i] = (hf_fence_item){names[i], stale_token(key, mode, seed), 0, 0};
    }
    if (hf_fence_admit_many(fence, items, STORM_BATCH, mode) != HF_OK)
        die("admit_many");
    for (int i = 0; i < STORM_BATCH; i++)
        judge_stale(items[i].result, items[i].token, items[i].mark, mode);
}

static void *stale_thread(void *arg)
{
    hf_fence *fence = arg;
    unsigned seed = (unsigned)getpid() ^ (unsigned)(uintptr_t)pthread_self();

    /* However slow the disk, some fresh ones must come between. */
    for (uint64_t i = 0; i < tries_each || atomic_load(&storm->fresh) < FRESH_MIN;) {
        int mode = rand_r(&seed) % 4 == 0 ? HF_NEWER : HF_NOT_OLDER;

        if (rand_r(&seed) % STORM_BATCH == 0) {
            knock_many(fence, mode, &seed);
            i += STORM_BATCH;
        } else {
            knock(fence, mode, &seed);
            i++;
        }
    }
    return NULL;
}

static void stale_process(const char *path, uint64_t threads)
{
    pthread_t started[THREADS_MAX];
    hf_fence *fence = open_fence(path);

    for (uint64_t i = 0; i < threads; i++)
        if (pthread_create(&started[i], NULL, stale_thread, fence) != 0)
            die("thread");
    for (uint64_t i = 0; i < threads; i++)
        pthread_join(started[i], NULL);
    hf_fence_close(fence);
}

/* Its keys get tokens from nobody else: none of them may be refused. */
static void fresh_process(const char *path, int which)
{
    unsigned seed = (unsigned)getpid();
    hf_fence *fence = open_fence(path);

    while (!atomic_load(&storm->over)) {
        int key = rand_r(&seed) % (STORM_KEYS / FRESHENERS) * FRESHENERS + which;
        int mode = rand_r(&seed) % 2 ? HF_NEWER : HF_NOT_OLDER, result;
        uint64_t token = atomic_load(&storm->seen[key]) + 1 + (uint64_t)rand_r(&seed) % 3;
        hf_fence_entry *entry = NULL;
        char name[KEY_SIZE];

        key_name((uint64_t)key, name);
        if (rand_r(&seed) % 2)
            result = hf_fence_begin(fence, name, token, mode, WAIT_MS, &entry, NULL);
        else
            result = hf_fence_admit(fence, name, token, mode, NULL);
        atomic_fetch_add(&storm->fresh, 1);
        if (result == HF_OK) {
            atomic_store(&storm->seen[key], token);
        } else {
            atomic_fetch_add(&storm->refused, 1);
            fprintf(stderr, "fresh token %" PRIu64 ": %s\n", token, hf_error());
        }
        hf_fence_end(entry);
    }
    hf_fence_close(fence);
}

static pid_t start(void)
{
    pid_t pid = fork();

    if (pid < 0)
        die("fork");
    if (pid == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    return pid;
}

static int await(pid_t pid)
{
    int status;

    return waitpid(pid, &status, 0) == pid && status == 0 ? 0 : 1;
}

static void begin_storm(const char *path)
{
    hf_fence *fence = open_fence(path);

    storm = mmap(NULL, sizeof *storm, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (storm == MAP_FAILED)
        die("map");
    for (uint64_t key = 0; key < STORM_KEYS; key++) {
        char name[KEY_SIZE];

        key_name(key, name);
        if (hf_fence_admit(fence, name, 1000, HF_NOT_OLDER, NULL) != HF_OK)
            die("admit");
        atomic_store(&storm->seen[key], 1000);
    }
    hf_fence_close(fence);
}

static int rage(char **words)
{
    uint64_t processes = number(words[1]), threads = number(words[2]);
    pid_t stale[PROCESSES_MAX], fresh[FRESHENERS];
    int failed = 0;

    if (processes == 0 || processes > PROCESSES_MAX || threads == 0 || threads > THREADS_MAX)
        return 64;
    tries_each = number(words[3]) / processes / threads;
    begin_storm(words[0]);
    for (int i = 0; i < FRESHENERS; i++)
        if ((fresh[i] = start()) == 0) {
            fresh_process(words[0], i);
            exit(0);
        }
    for (uint64_t i = 0; i < processes; i++)
        if ((stale[i] = start()) == 0) {
            stale_process(words[0], threads);
            exit(0);
        }
    for (uint64_t i = 0; i < processes; i++)
        failed |= await(stale[i]);
    atomic_store(&storm->over, true);
    for (int i = 0; i < FRESHENERS; i++)
        failed |= await(fresh[i]);
    tell("{\"stale\":%" PRIu64 ",\"accepted\":%" PRIu64 ",\"fresh\":%" PRIu64
         ",\"refused\":%" PRIu64 "}",
         storm->stale, storm->accepted, storm->fresh, storm->refused);
    return failed;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int words;
        int (*run)(char **words);
    } modes[] = {{"hold", 8, hold},
                 {"play", 4, play},
                 {"enter", 3, enter_all},
                 {"count", 3, count},
                 {"storm", 4, rage}};

    for (size_t i = 0; argc > 1 && i < sizeof modes / sizeof *modes; i++)
        if (strcmp(argv[1], modes[i].name) == 0 && argc == modes[i].words + 2)
            return modes[i].run(argv + 2);
    fprintf(stderr, "usage: fence-user hold|play|enter|count|storm ...\n");
    return 64;
}
