/* helper.c: other processes. `conformance --hold URL NAME [WORD...]` acquires, says "held TOKEN" (or "error
 * RESULT WORDS"), "lost" when it loses it, and then does what it reads: "release" (says "released
 * RESULT"), "left" (says "left MS"), and after a release "again NAME", with the same handle. At the end of its input it exits without releasing.
 *
 * With the word "once" NAME is a key, which it begins to run, and "finish TEXT" (says "finished RESULT")
 * keeps TEXT for a minute. */
#include "suite.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the side of the test -------------------------------------------------------------------- */

#define WORDS_MAX 8

static void become_helper(const struct context *context, const char *name, const char *extra,
                          pid_t parent)
{
    char words[256] = "", ttl[32];
    char *argv[4 + WORDS_MAX + 1] = {program_path, "--hold", (char *)(uintptr_t)context->url,
                                     (char *)(uintptr_t)name};
    int argc = 4;
    char *rest = words;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    if (extra)
        snprintf(words, sizeof words, "%s", extra);
    for (char *word; argc < 4 + WORDS_MAX && (word = strsep(&rest, " "));)
        if (strncmp(word, "ttl=", 4) == 0) {
            snprintf(ttl, sizeof ttl, "ttl=%" PRId64, ttl_of(context, strtoll(word + 4, NULL, 10)));
            if (context->features & HF_HAS_TTL)
                argv[argc++] = ttl;
        } else if (*word)
            argv[argc++] = word;
    argv[argc] = NULL;
    execv(program_path, argv); /* not /proc/self/exe: under valgrind that is valgrind */
    _exit(127);
}

struct helper *helper_start(struct context *context, const char *name, const char *extra)
{
    struct helper *helper;
    int to[2], from[2];
    pid_t parent = getpid();

    assert_true(context->helper_count < HELPERS_MAX);
    helper = &context->helpers[context->helper_count];
    assert_int_equal(0, pipe2(to, O_CLOEXEC));
    assert_int_equal(0, pipe2(from, O_CLOEXEC));
    fflush(NULL);
    *helper = (struct helper){.pid = fork(), .to = to[1], .from = from[0]};
    assert_true(helper->pid >= 0);
    if (helper->pid == 0) {
        if (dup2(to[0], 0) < 0 || dup2(from[1], 1) < 0)
            _exit(1);
        become_helper(context, name, extra, parent);
    }
    context->helper_count++;
    close(to[0]);
    close(from[1]);
    return helper;
}

void helper_say(struct helper *helper, const char *line)
{
    assert_int_equal(strlen(line), write(helper->to, line, strlen(line)));
    assert_int_equal(1, write(helper->to, "\n", 1));
}

static char *next_line(struct helper *helper)
{
    static char line[LINE_SIZE];
    int64_t deadline_ms = now_ms() + PATIENCE_MS;

    for (;;) {
        char *end = memchr(helper->unread, '\n', helper->unread_size);
        struct pollfd pollfd = {.fd = helper->from, .events = POLLIN};
        ssize_t got;

        if (end) {
            size_t size = (size_t)(end - helper->unread);

            memcpy(line, helper->unread, size);
            line[size] = '\0';
            helper->unread_size -= size + 1;
            memmove(helper->unread, end + 1, helper->unread_size);
            return line;
        }
        if (poll(&pollfd, 1, (int)(deadline_ms - now_ms())) != 1)
            fail_msg("the helper process says nothing");
        got = read(helper->from, helper->unread + helper->unread_size,
                   sizeof helper->unread - helper->unread_size);
        if (got <= 0)
            fail_msg("the helper process ended");
        helper->unread_size += (size_t)got;
    }
}

const char *helper_hear(struct helper *helper, const char *word)
{
    const char *line = next_line(helper);

    if (strncmp(line, word, strlen(word)) != 0)
        fail_msg("the helper process said '%s' instead of '%s'", line, word);
    line += strlen(word);
    return *line == ' ' ? line + 1 : line;
}

uint64_t helper_hold(struct context *context, const char *name, const char *extra,
                     struct helper **ret_helper)
{
    struct helper *helper = helper_start(context, name, extra);

    *ret_helper = helper;
    return strtoull(helper_hear(helper, "held"), NULL, 10);
}

void helper_kill(struct helper *helper)
{
    if (helper->pid <= 0)
        return;
    kill(helper->pid, SIGKILL);
    waitpid(helper->pid, NULL, 0);
    close(helper->to);
    close(helper->from);
    helper->pid = 0;
}

void helpers_end(struct context *context)
{
    for (int i = 0; i < context->helper_count; i++)
        helper_kill(&context->helpers[i]);
    context->helper_count = 0;
}

/* ---- the process itself ---------------------------------------------------------------------- */

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void say(const char *format, ...)
{
    char line[LINE_SIZE];
    va_list args;
    int size;

    va_start(args, format);
    size = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    if (size < 0 || (size_t)size >= sizeof line - 1)
        _exit(1);
    line[size++] = '\n';
    if (write(1, line, (size_t)size) != size) /* one write: callbacks speak, too */
        _exit(1);
}

static void say_lost(hf_lock *lock, void *arg)
{
    (void)lock;
    (void)arg;
    say("lost");
}

static void read_word(const char *word, hf_options *options, bool *once)
{
    const char *value = strchr(word, '=');
    long long number = value ? strtoll(value + 1, NULL, 10) : 0;

    if (strcmp(word, "mode=shared") == 0)
        options->mode = HF_SHARED;
    else if (strncmp(word, "ttl=", 4) == 0)
        options->ttl_ms = number;
    else if (strncmp(word, "delay=", 6) == 0)
        options->delay_ms = number;
    else if (strncmp(word, "permits=", 8) == 0) {
        options->mode = HF_PERMIT;
        options->permits = (uint32_t)number;
    } else if (strcmp(word, "once") == 0)
        *once = true;
    else
        _exit(64);
}

static hf_lock *acquire(hf_store *store, const char *name, const hf_options *options)
{
    hf_lock *lock = NULL;
    int result = hf_acquire(store, name, options, &lock);

    if (result == HF_OK)
        say("held %" PRIu64, hf_lock_token(lock));
    else
        say("error %s %s", hf_result_name(result), hf_error());
    return lock;
}

static void obey(hf_store *store, const hf_options *options, hf_lock *lock)
{
    char line[64];

    while (fgets(line, sizeof line, stdin)) {
        if (strcmp(line, "release\n") == 0 && lock) {
            say("released %s", hf_result_name(hf_release(lock)));
            lock = NULL;
        } else if (strcmp(line, "left\n") == 0 && lock) {
            say("left %" PRId64, hf_lock_left_ms(lock));
        } else if (strncmp(line, "again ", 6) == 0 && !lock) {
            line[strcspn(line, "\n")] = '\0';
            lock = acquire(store, line + 6, options);
        } else if (strcmp(line, "close\n") == 0) {
            hf_close(store);
            say("closed");
        }
    }
}

/* As `obey`, for something to be run once. */
static void run_once(hf_store *store, const char *key, int64_t ttl_ms)
{
    hf_once_options options = HF_ONCE_OPTIONS_INIT;
    char line[64];
    hf_once *once;
    int result;

    if (hf_info(store)->features & HF_HAS_TTL)
        options.ttl_ms = ttl_ms;
    result = hf_once_begin(store, key, &options, &once);
    if (result != HF_OK || !hf_once_runs(once)) {
        say("error %s %s", hf_result_name(result), result == HF_OK ? "has been run" : hf_error());
        _exit(1);
    }
    say("held %" PRIu64, hf_once_token(once));
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "finish ", 7) == 0)
            say("finished %s",
                hf_result_name(hf_once_finish(once, line + 7, strlen(line + 7), 60000)));
    }
    _exit(0);
}

int helper_main(int argc, char **argv)
{
    hf_options options = HF_OPTIONS_INIT;
    hf_store *store;
    hf_lock *lock;
    bool once = false;

    if (argc < 4)
        return 64;
    if (hf_open(argv[2], &store) != HF_OK) {
        say("error opening: %s", hf_error());
        return 1;
    }
    if (hf_info(store)->features & HF_HAS_TTL)
        options.ttl_ms = LONG_TTL_MS;
    options.on_lost = say_lost;
    for (int i = 4; i < argc; i++)
        read_word(argv[i], &options, &once);
    if (once)
        run_once(store, argv[3], options.ttl_ms);
    lock = acquire(store, argv[3], &options);
    if (!lock)
        return 1;
    obey(store, &options, lock);
    _exit(0); /* as a process that dies would, without a word to the store */
}
