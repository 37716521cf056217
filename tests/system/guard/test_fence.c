/* test_fence.c: the rule of a fence, its arguments, what it writes, resets. Who is inside a key is in
 * test_fence_inside.c, trouble in test_fence_trouble.c, and what happens when processes are killed or
 * stopped at random in test_fence_campaigns.py. */
#include "fence_tools.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MANY_KEYS 200 /* several pages of hf_fence_each */

/* ---- the module ------------------------------------------------------------------------------ */

/* Tries to open a fence while modules are there and nowhere else. */
static int open_with_modules_in(const char *place)
{
    const char *before = getenv("HOLDFAST_MODULE_DIR");
    hf_fence *none = NULL;
    char kept[8192];
    int result;

    snprintf(kept, sizeof kept, "%s", before ? before : "");
    setenv("HOLDFAST_MODULE_DIR", place, 1);
    result = hf_fence_open("anywhere", NULL, &none);
    setenv("HOLDFAST_MODULE_DIR", kept, 1);
    assert_null(none);
    assert_int_equal(access("anywhere", F_OK), -1);
    return result;
}

/* These two come first: a module that has been loaded stays. */
static void test_a_missing_module_is_named(void **state)
{
    (void)state;
    assert_int_equal(open_with_modules_in("/nonexistent"), HF_EMODULE);
    assert_says("holdfast-fence");
}

static void test_a_module_of_another_version_is_refused(void **state)
{
    const char *wrong = getenv("HF_WRONG_MODULE_DIR");

    (void)state;
    assert_int_equal(open_with_modules_in(wrong ? wrong : "."), HF_EMODULE);
    assert_says(wrong ? "does not fit" : "holdfast-fence");
}

/* ---- the rule -------------------------------------------------------------------------------- */

static void test_a_mark_only_rises(void **state)
{
    (void)state;
    assert_int_equal(mark_of("k"), 0);
    MUST(admit("k", 34));
    assert_int_equal(mark_of("k"), 34);
    MUST(admit("k", 34));
    MUST(admit("k", 35));
    assert_int_equal(admit("k", 34), HF_ESTALE);
    assert_int_equal(admit("k", 1), HF_ESTALE);
    assert_int_equal(mark_of("k"), 35);
    assert_int_equal(mark_of("l"), 0);
    MUST(admit("k", HF_TOKEN_MAX));
    assert_int_equal(mark_of("k"), HF_TOKEN_MAX);
}

static void test_stale_names_both_tokens(void **state)
{
    hf_fence_entry *entry = (void *)1;
    uint64_t mark = 0;

    (void)state;
    MUST(admit("account:7", 350));
    assert_int_equal(hf_fence_admit(fence, "account:7", 330, HF_NOT_OLDER, &mark), HF_ESTALE);
    assert_says("330");
    assert_says("350");
    assert_says("account:7");
    assert_says("somebody has entered with it"); /* whether that one held the lock, nobody knows */
    assert_int_equal(mark, 350);
    mark = 0;
    assert_int_equal(hf_fence_begin(fence, "account:7", 329, HF_NOT_OLDER, 0, &entry, &mark),
                     HF_ESTALE);
    assert_says("329");
    assert_says("350");
    assert_int_equal(mark, 350);
    assert_ptr_equal(entry, (void *)1);
    assert_false(is_held("account:7"));
}

static void test_both_tokens_are_named_however_long_the_key(void **state)
{
    char key[HF_KEY_MAX + 1];

    (void)state;
    memset(key, 'k', HF_KEY_MAX);
    key[HF_KEY_MAX] = '\0';
    MUST(admit(key, HF_TOKEN_MAX));
    assert_int_equal(admit(key, HF_TOKEN_MAX - 1), HF_ESTALE);
    assert_says("9007199254740990");
    assert_says("9007199254740991");
}

static void test_newer_refuses_the_same_token(void **state)
{
    hf_fence_entry *entry = NULL;
    uint64_t mark = 0;

    (void)state;
    MUST(hf_fence_admit(fence, "once", 7, HF_NEWER, NULL));
    assert_int_equal(hf_fence_admit(fence, "once", 7, HF_NEWER, &mark), HF_ESTALE);
    assert_int_equal(mark, 7);
    assert_says("7");
    assert_int_equal(hf_fence_begin(fence, "once", 7, HF_NEWER, 0, &entry, NULL), HF_ESTALE);
    assert_null(entry);
    MUST(hf_fence_admit(fence, "once", 7, HF_NOT_OLDER, NULL));
    MUST(hf_fence_admit(fence, "once", 8, HF_NEWER, NULL));
}

static void test_the_mark_before_is_given_back(void **state)
{
    hf_fence_entry *entry;
    uint64_t mark = 99;

    (void)state;
    MUST(hf_fence_begin(fence, "k", 5, HF_NOT_OLDER, 0, &entry, &mark));
    assert_int_equal(mark, 0);
    hf_fence_end(entry);
    MUST(hf_fence_begin(fence, "k", 9, HF_NOT_OLDER, 0, &entry, &mark));
    assert_int_equal(mark, 5);
    hf_fence_end(entry);
    MUST(hf_fence_admit(fence, "k", 9, HF_NOT_OLDER, &mark));
    assert_int_equal(mark, 9);
}

static void test_any_bytes_make_a_key(void **state)
{
    static const char odd[] = "\x01\xff \n/../%";
    char key[HF_KEY_MAX + 1];

    (void)state;
    MUST(admit(odd, 3));
    assert_int_equal(mark_of(odd), 3);
    memset(key, 'x', HF_KEY_MAX);
    key[HF_KEY_MAX] = '\0';
    MUST(admit(key, 4));
    key[HF_KEY_MAX - 1] = 'y';
    assert_int_equal(mark_of(key), 0);
    MUST(admit(key, 2));
    assert_int_equal(mark_of(key), 2);
}

/* ---- arguments ------------------------------------------------------------------------------- */

static void test_arguments_are_checked(void **state)
{
    hf_fence_entry *entry = (void *)1;
    uint64_t mark = 77;
    char key[HF_KEY_MAX + 2];

    (void)state;
    memset(key, 'k', HF_KEY_MAX + 1);
    key[HF_KEY_MAX + 1] = '\0';
    assert_int_equal(admit("", 1), HF_EINVAL);
    assert_int_equal(admit(NULL, 1), HF_EINVAL);
    assert_int_equal(admit(key, 1), HF_EINVAL);
    assert_says("400");
    assert_int_equal(admit("k", 0), HF_EINVAL);
    assert_int_equal(admit("k", HF_TOKEN_MAX + 1), HF_EINVAL);
    assert_int_equal(hf_fence_admit(fence, "k", 1, 2, &mark), HF_EINVAL);
    assert_int_equal(hf_fence_admit(NULL, "k", 1, 0, &mark), HF_EINVAL);
    assert_int_equal(hf_fence_begin(fence, "k", 1, 0, -2, &entry, &mark), HF_EINVAL);
    assert_int_equal(hf_fence_begin(fence, "k", 1, 0, HF_DURATION_MAX_MS + 1, &entry, &mark),
                     HF_EINVAL);
    assert_int_equal(hf_fence_begin(fence, "k", 1, 0, 0, NULL, &mark), HF_EINVAL);
    assert_int_equal(hf_fence_mark(fence, key, &mark), HF_EINVAL);
    assert_int_equal(hf_fence_mark(fence, "k", NULL), HF_EINVAL);
    assert_int_equal(hf_fence_each(fence, NULL, NULL), HF_EINVAL);
    assert_int_equal(hf_fence_reset(fence, "k", HF_TOKEN_MAX + 1, NULL, &mark), HF_EINVAL);
    assert_int_equal(mark, 77);
    assert_ptr_equal(entry, (void *)1);
    assert_int_equal(mark_of("k"), 0);
    hf_fence_end(NULL);
    hf_fence_close(NULL);
}

static void test_options_are_checked(void **state)
{
    hf_fence_options options = HF_FENCE_OPTIONS_INIT;
    struct {
        hf_fence_options known;
        int unknown;
    } longer;
    hf_fence *none = NULL;

    (void)state;
    options.size = 0;
    assert_int_equal(hf_fence_open(dir, &options, &none), HF_EINVAL);
    assert_says("HF_FENCE_OPTIONS_INIT");
    options = (hf_fence_options)HF_FENCE_OPTIONS_INIT;
    options.bytes_max = HF_FENCE_BYTES_MIN - 1;
    assert_int_equal(hf_fence_open(dir, &options, &none), HF_EINVAL);
    options.bytes_max = HF_FENCE_BYTES_MAX + 1;
    assert_int_equal(hf_fence_open(dir, &options, &none), HF_EINVAL);
    options = (hf_fence_options)HF_FENCE_OPTIONS_INIT;
    options.patience_ms = -1;
    assert_int_equal(hf_fence_open(dir, &options, &none), HF_EINVAL);
    memset(&longer, 0, sizeof longer); /* what lies between counts, too */
    longer.known.size = sizeof longer;
    MUST(hf_fence_open(dir, &longer.known, &none));
    hf_fence_close(none);
    none = NULL;
    longer.unknown = 1;
    assert_int_equal(hf_fence_open(dir, &longer.known, &none), HF_EINVAL);
    assert_says("does not know");
    assert_int_equal(hf_fence_open(dir, NULL, NULL), HF_EINVAL);
    assert_int_equal(hf_fence_open("", NULL, &none), HF_EINVAL);
    assert_int_equal(hf_fence_open(NULL, NULL, &none), HF_EINVAL);
    assert_null(none);
}

/* ---- what is written ------------------------------------------------------------------------- */

static void test_what_raises_nothing_writes_nothing(void **state)
{
    hf_fence_item items[2] = {{"k", 30, 0, 0}, {"k", 29, 0, 0}};
    struct stat before, after;
    uint64_t count;

    (void)state;
    MUST(admit("k", 30));
    count = count_writes();
    assert_int_equal(stat(fence_file("data.mdb"), &before), 0);
    for (int i = 0; i < 100; i++) {
        hf_fence_end(enter("k", 30));
        MUST(admit("k", 30));
        assert_int_equal(admit("k", 29), HF_ESTALE);
        MUST(hf_fence_admit_many(fence, items, 2, HF_NOT_OLDER));
    }
    assert_int_equal(count_writes(), count);
    assert_int_equal(stat(fence_file("data.mdb"), &after), 0);
    assert_memory_equal(&before.st_mtim, &after.st_mtim, sizeof before.st_mtim);
    MUST(admit("k", 31));
    assert_int_equal(count_writes(), count + 1);
}

/* In front of libc's: LMDB syncs what it wrote, then writes its first page, which makes it count,
 * through a descriptor whose writes are synced. */
static int syncs, synced_writes, synced_before_sync;

HF_API int fdatasync(int fd)
{
    syncs++;
    return (int)syscall(SYS_fdatasync, fd);
}

/* Under its own name: the header may mean another by it. */
HF_API ssize_t count_pwrite(int fd, const void *bytes, size_t size, off_t at) __asm__("pwrite");

ssize_t count_pwrite(int fd, const void *bytes, size_t size, off_t at)
{
    if (fcntl(fd, F_GETFL) & O_DSYNC) {
        synced_writes++;
        synced_before_sync += syncs == 0;
    }
    return syscall(SYS_pwrite64, fd, bytes, size, at);
}

static void test_a_mark_is_on_the_disk_before_it_counts(void **state)
{
    (void)state;
    for (uint64_t token = 1; token <= 3; token++) {
        syncs = synced_writes = synced_before_sync = 0;
        MUST(admit("k", token));
        assert_true(syncs >= 1);
        assert_true(synced_writes >= 1);
        assert_int_equal(synced_before_sync, 0);
    }
    syncs = synced_writes = 0;
    MUST(hf_fence_reset(fence, "k", 1, NULL, NULL));
    assert_true(syncs >= 2); /* the log, and the mark */
    assert_true(synced_writes >= 1);
}

static void test_many_at_once_are_one_write(void **state)
{
    hf_fence_item items[] = {{"a", 5, 1, 99}, {"b", 7, 1, 99}, {"a", 4, 1, 99},
                             {"a", 6, 1, 99}, {"c", 3, 1, 99}, {"a", 6, 1, 99}};
    static const int results[] = {HF_OK, HF_OK, HF_ESTALE, HF_OK, HF_ESTALE, HF_OK};
    static const uint64_t marks[] = {0, 0, 5, 5, 8, 6};
    uint64_t count;

    (void)state;
    MUST(admit("c", 8));
    count = count_writes();
    MUST(hf_fence_admit_many(fence, items, 6, HF_NOT_OLDER));
    for (int i = 0; i < 6; i++) {
        assert_int_equal(items[i].result, results[i]);
        assert_int_equal(items[i].mark, marks[i]);
    }
    assert_int_equal(count_writes(), count + 1);
    assert_int_equal(mark_of("a"), 6);
    assert_int_equal(mark_of("b"), 7);
    assert_int_equal(mark_of("c"), 8);
    MUST(hf_fence_admit_many(fence, items + 5, 1, HF_NEWER));
    assert_int_equal(items[5].result, HF_ESTALE);
    MUST(hf_fence_admit_many(fence, NULL, 0, HF_NOT_OLDER));
}

static void test_a_batch_with_a_wrong_item_changes_nothing(void **state)
{
    hf_fence_item items[] = {{"a", 5, 1, 99}, {"b", 0, 1, 99}};

    (void)state;
    assert_int_equal(hf_fence_admit_many(fence, items, 2, HF_NOT_OLDER), HF_EINVAL);
    assert_says("item 1");
    assert_int_equal(mark_of("a"), 0);
    assert_int_equal(items[0].result, 1);
    assert_int_equal(items[0].mark, 99);
    assert_int_equal(hf_fence_admit_many(fence, items, HF_FENCE_BATCH_MAX + 1, HF_NOT_OLDER),
                     HF_EINVAL);
    assert_int_equal(hf_fence_admit_many(fence, NULL, 1, HF_NOT_OLDER), HF_EINVAL);
}

static void test_a_batch_may_be_large(void **state)
{
    static hf_fence_item items[HF_FENCE_BATCH_MAX];
    static char keys[HF_FENCE_BATCH_MAX][16];

    (void)state;
    for (int i = 0; i < HF_FENCE_BATCH_MAX; i++) {
        snprintf(keys[i], sizeof keys[i], "key %d", i);
        items[i] = (hf_fence_item){keys[i], (uint64_t)i + 1, 1, 99};
    }
    MUST(hf_fence_admit_many(fence, items, HF_FENCE_BATCH_MAX, HF_NEWER));
    for (int i = 0; i < HF_FENCE_BATCH_MAX; i++)
        assert_int_equal(items[i].result, HF_OK);
    assert_int_equal(mark_of("key 4095"), 4096);
}

/* ---- all keys -------------------------------------------------------------------------------- */

struct seen {
    int count, stop_at;
    char last[HF_KEY_MAX + 1];
};

static int see(const char *key, uint64_t mark, void *arg)
{
    struct seen *seen = arg;

    if (seen->count > 0)
        assert_true(strcmp(seen->last, key) < 0);
    assert_int_equal(mark, 1000 + strtoull(key + 2, NULL, 10));
    snprintf(seen->last, sizeof seen->last, "%s", key);
    MUST(admit("k/zzz", 1)); /* it may call back */
    return ++seen->count == seen->stop_at;
}

static void test_every_key_is_told_in_order(void **state)
{
    struct seen seen = {0};
    char key[16];

    (void)state;
    MUST(hf_fence_each(fence, see, &seen));
    assert_int_equal(seen.count, 0);
    MUST(admit("k/zzz", 1));
    for (int i = MANY_KEYS - 1; i >= 0; i--) {
        snprintf(key, sizeof key, "k/%03d", i);
        MUST(admit(key, 1000 + (uint64_t)i));
    }
    seen.stop_at = MANY_KEYS;
    MUST(hf_fence_each(fence, see, &seen));
    assert_int_equal(seen.count, MANY_KEYS);
    seen = (struct seen){.stop_at = 3};
    MUST(hf_fence_each(fence, see, &seen));
    assert_int_equal(seen.count, 3);
    assert_string_equal(seen.last, "k/002");
}

static void test_pages_end_where_they_should(void **state)
{
    char key[16];
    int count;

    (void)state;
    for (int i = 1; i <= 130; i++) { /* 64 rows to a page */
        snprintf(key, sizeof key, "%d", i);
        MUST(admit(key, 1));
        if (i % 64 > 1 && i % 64 < 63)
            continue;
        count = 0;
        MUST(hf_fence_each(fence, count_keys, &count));
        assert_int_equal(count, i);
    }
}

/* ---- resets ---------------------------------------------------------------------------------- */

static void read_log(char *ret_text, size_t size)
{
    FILE *file = fopen(fence_file("resets.log"), "r");
    size_t length;

    assert_non_null(file);
    length = fread(ret_text, 1, size - 1, file);
    ret_text[length] = '\0';
    fclose(file);
}

static void test_a_reset_sets_and_logs(void **state)
{
    char log[4096], *line;
    uint64_t was = 99;

    (void)state;
    MUST(admit("a key", 350));
    MUST(hf_fence_reset(fence, "a key", 12, "moved\nto another store", &was));
    assert_int_equal(was, 350);
    assert_int_equal(mark_of("a key"), 12);
    MUST(admit("a key", 13));
    MUST(hf_fence_reset(fence, "a key", 400, NULL, &was));
    assert_int_equal(was, 13);
    assert_int_equal(admit("a key", 399), HF_ESTALE);
    MUST(hf_fence_reset(fence, "a key", 0, "", NULL));
    assert_int_equal(mark_of("a key"), 0);
    MUST(admit("a key", 1));
    MUST(hf_fence_reset(fence, "never seen", 0, NULL, &was));
    assert_int_equal(was, 0);
    read_log(log, sizeof log);
    line = strstr(log, "Z a%20key 350 -> 12 by ");
    assert_non_null(line);
    assert_non_null(strstr(line, ": moved?to another store\n"));
    assert_non_null(strstr(log, "Z a%20key 13 -> 400 by "));
    assert_non_null(strstr(log, "Z a%20key 400 -> 0 by "));
    assert_non_null(strstr(log, "Z never%20seen 0 -> 0 by "));
}

static void test_no_log_no_reset(void **state)
{
    char reason[HF_REASON_MAX + 2];
    uint64_t was = 99;

    (void)state;
    MUST(admit("k", 35));
    assert_int_equal(mkdir(fence_file("resets.log"), 0700), 0);
    assert_true(hf_fence_reset(fence, "k", 1, NULL, &was) < 0);
    assert_int_equal(was, 99);
    assert_int_equal(mark_of("k"), 35);
    assert_int_equal(rmdir(fence_file("resets.log")), 0);
    memset(reason, 'w', sizeof reason - 1);
    reason[sizeof reason - 1] = '\0';
    assert_int_equal(hf_fence_reset(fence, "k", 1, reason, NULL), HF_EINVAL);
    assert_int_equal(mark_of("k"), 35);
    reason[HF_REASON_MAX] = '\0';
    MUST(hf_fence_reset(fence, "k", 1, reason, NULL));
}

static void test_a_torn_line_does_not_swallow_the_next(void **state)
{
    int fd = open(fence_file("resets.log"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    char log[4096];

    (void)state;
    assert_int_equal(write(fd, "2026-01-01T00:0", 15), 15);
    close(fd);
    MUST(hf_fence_reset(fence, "k", 3, NULL, NULL));
    read_log(log, sizeof log);
    assert_non_null(strstr(log, "2026-01-01T00:0\n2"));
    assert_non_null(strstr(log, " k 0 -> 3 by "));
}

static void test_a_log_too_long_is_refused(void **state)
{
    (void)state;
    MUST(hf_fence_reset(fence, "k", 3, NULL, NULL));
    assert_int_equal(truncate(fence_file("resets.log"), 64 * 1024 * 1024 + 1), 0);
    assert_int_equal(hf_fence_reset(fence, "k", 2, NULL, NULL), HF_EREFUSED);
    assert_says("move it away");
    assert_int_equal(mark_of("k"), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_missing_module_is_named),
        cmocka_unit_test(test_a_module_of_another_version_is_refused),
        FENCE_TEST(test_a_mark_only_rises),
        FENCE_TEST(test_stale_names_both_tokens),
        FENCE_TEST(test_both_tokens_are_named_however_long_the_key),
        FENCE_TEST(test_newer_refuses_the_same_token),
        FENCE_TEST(test_the_mark_before_is_given_back),
        FENCE_TEST(test_any_bytes_make_a_key),
        FENCE_TEST(test_arguments_are_checked),
        FENCE_TEST(test_options_are_checked),
        FENCE_TEST(test_what_raises_nothing_writes_nothing),
        FENCE_TEST(test_a_mark_is_on_the_disk_before_it_counts),
        FENCE_TEST(test_many_at_once_are_one_write),
        FENCE_TEST(test_a_batch_with_a_wrong_item_changes_nothing),
        FENCE_TEST(test_a_batch_may_be_large),
        FENCE_TEST(test_every_key_is_told_in_order),
        FENCE_TEST(test_pages_end_where_they_should),
        FENCE_TEST(test_a_reset_sets_and_logs),
        FENCE_TEST(test_no_log_no_reset),
        FENCE_TEST(test_a_torn_line_does_not_swallow_the_next),
        FENCE_TEST(test_a_log_too_long_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
