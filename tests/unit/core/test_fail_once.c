/* test_fail_once.c: each allocation of the lock table fails once, in a process of its own. A node that went on would no longer be a copy
 * of the others: it stops, and says that memory is what it lacked. Nothing that was answered before is taken back, since nothing is
 * answered after. */
#include "failing.h"
#include "tools.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define CROWD 70 /* more than one page of claims, and more than few claims of one lease */
#define STEP 500 /* bytes of a snapshot at a time */

static struct core_text numbered(char room[16], char kind, unsigned number)
{
    snprintf(room, 16, "%c%u", kind, number);
    return text(room);
}

/* One of each command, and of what may become of it. */
static void one_of_each(struct core *core)
{
    static const struct core_text renewed = {"D", 1};
    static const struct core_command commands[] = {
        {.op = CORE_IDENTITY, .result = {"0123456789abcdef", 16}},
        {.op = CORE_MEMBER, .token = 1, .result = {"db1:7420", 8}},
        {.op = CORE_ACQUIRE, .name = {"a", 1}, .lease = {"A", 1}, .ttl_ms = 5000, .delay_ms = 700},
        {.op = CORE_ACQUIRE,
         .flags = CORE_WAITS | CORE_KEPT,
         .name = {"a", 1},
         .lease = {"B", 1},
         .ttl_ms = 30000,
         .wait_ms = CORE_FOREVER,
         .owner = {"somebody", 8}},
        {.op = CORE_ACQUIRE,
         .flags = CORE_WAITS,
         .name = {"a", 1},
         .lease = {"C", 1},
         .ttl_ms = 30000,
         .wait_ms = 20},
        {.op = CORE_ACQUIRE, .name = {"r", 1}, .lease = {"C", 1}, .mode = HF_SHARED, .ttl_ms = 100},
        {.op = CORE_ACQUIRE, .name = {"r", 1}, .lease = {"D", 1}, .mode = HF_SHARED, .ttl_ms = 900},
        {.op = CORE_ACQUIRE,
         .name = {"p", 1},
         .lease = {"E", 1},
         .mode = HF_PERMIT,
         .permits = 3,
         .ttl_ms = 30000},
        {.op = CORE_BREAK, .name = {"a", 1}},
        {.op = CORE_ACQUIRE,
         .flags = CORE_ONCE,
         .name = {"k", 1},
         .lease = {"F", 1},
         .ttl_ms = 3000,
         .delay_ms = 60000},
        {.op = CORE_FINISH,
         .flags = CORE_ONCE,
         .name = {"k", 1},
         .lease = {"F", 1},
         .token = 5,
         .keep_ms = 60000,
         .result = {"the result", 10}},
        {.op = CORE_RENEW, .leases = &renewed, .lease_count = 1},
        {.op = CORE_END, .lease = {"G", 1}, .ttl_ms = 86400000},
        {.op = CORE_RELEASE, .name = {"p", 1}, .lease = {"E", 1}},
        {.op = CORE_FLOOR, .token = 1000},
    };

    for (size_t i = 0; i < COUNT(commands); i++)
        table_do(core, &commands[i], NULL);
    table_pass(core, 2000);
}

/* What makes indexes, slabs and lists of deadlines grow: many in one entry, many names of one lease, one name of many. */
static void crowd(struct core *core)
{
    struct core_packer packer = {0};
    char name[16], lease[16];

    for (unsigned i = 0; i < CROWD; i++) {
        struct core_command many = {.op = CORE_ACQUIRE, .ttl_ms = 1000},
                            queue = {.op = CORE_ACQUIRE, .ttl_ms = 1000, .flags = CORE_WAITS};

        many.name = numbered(name, 'n', i);
        many.lease = text("many");
        core_pack(&packer, &many);
        queue.name = text("queue");
        queue.lease = numbered(lease, 'l', i);
        queue.wait_ms = 5000;
        core_pack(&packer, &queue);
    }
    table_apply(core, &packer, 1, true, NULL);
    core_packer_free(&packer);
}

/* Returns what the table is like at the end. */
static uint64_t life(void)
{
    struct core *core = table_new(1), *other;
    struct error_text err = {""};
    size_t size = 0;
    uint64_t hash;
    void *bytes;

    one_of_each(core);
    core_snapshot_begin(core);
    crowd(core); /* while a snapshot is taken */
    while (!core_snapshot_step(core, STEP))
        table_pass(core, 10);
    bytes = core_snapshot_end(core, &size);
    other = table_new(2);
    assert_int_equal(core_restore(other, bytes, size, &err), HF_OK);
    free(bytes);
    table_pass(core, 3000);
    table_pass(other, 1000);
    one_of_each(core);
    hash = core_hash(core);
    core_free(core);
    core_free(other);
    return hash;
}

/* The n-th fails in a child. False: there were not so many, and it went through. */
static bool stops(uint64_t n, uint64_t expected)
{
    char words[512] = "";
    int ends[2], status;
    ssize_t count, used = 0;
    pid_t child;

    assert_int_equal(pipe(ends), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        uint64_t hash;

        dup2(ends[1], 2);
        failing_begin(FAILING_ALLOCATIONS, FAILING_OURS, n, 0);
        signal(SIGABRT, SIG_DFL);
        hash = life();
        failing_end();
        _exit(failing_struck() ? 1 : hash == expected ? 0 : 2);
    }
    close(ends[1]);
    while ((count = read(ends[0], words + used, sizeof words - 1 - (size_t)used)) > 0)
        used += count;
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return false;
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT || !strstr(words, "out of memory"))
        fail_msg("allocation %llu: status %x, %s", (unsigned long long)n, (unsigned)status, words);
    return true;
}

static void each_allocation(void **state)
{
    size_t before = failing_memory();
    uint64_t expected, count, n;

    (void)state;
    failing_begin(FAILING_ALLOCATIONS, FAILING_OURS, 0, 0);
    expected = life();
    count = failing_end();
    assert_int_equal(failing_memory(), before);
    for (n = 1; stops(n, expected); n++)
        ;
    assert_int_equal(n - 1, count);
    printf("lock table: %llu allocations\n", (unsigned long long)count);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_allocation)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
