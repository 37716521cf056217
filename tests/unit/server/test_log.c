/* test_log.c: what reaches stderr, here a pipe. */
#include "base/clock.h"
#include "base/text.h"
#include "server/log.h"
#include "tools.h"

#include <fcntl.h>
#include <signal.h>
#include <time.h>

static int real_stderr, pipe_out; /* the reading end of what is stderr during a test */
static int64_t shift_ms;

static int make_stderr_a_pipe(void)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return -1;
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    /* Blocking, as it usually is: a test would stand still if the log waited. */
    fcntl(STDERR_FILENO, F_SETFL, 0);
    pipe_out = ends[0];
    return 0;
}

static int set_up(void **state)
{
    (void)state;
    real_stderr = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 10);
    if (real_stderr < 0 || make_stderr_a_pipe() < 0)
        return -1;
    unsetenv("JOURNAL_STREAM");
    log_open(LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    alarm(30);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    alarm(0);
    log_close();
    dup2(real_stderr, STDERR_FILENO);
    close(real_stderr);
    close(pipe_out);
    return 0;
}

/* Everything that was logged since the last call. A write to a pipe is there when it returns. */
static const char *logged(void)
{
    static char bytes[200000];
    size_t used = 0;
    ssize_t n;

    while (used < sizeof bytes - 1 &&
           (n = read(pipe_out, bytes + used, sizeof bytes - 1 - used)) > 0)
        used += (size_t)n;
    bytes[used] = '\0';
    assert_int_equal(used, strlen(bytes)); /* no NUL ever */
    return bytes;
}

static size_t count_lines(const char *text)
{
    size_t lines = 0;

    while ((text = strchr(text, '\n'))) {
        lines++;
        text++;
    }
    return lines;
}

/* What follows the time. */
static const char *logged_after_time(void)
{
    const char *line = logged();

    assert_true(strlen(line) > 25);
    return line + 25;
}

static void later(int64_t ms)
{
    shift_ms += ms;
    clock_test_shift_ms(shift_ms);
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void a_line_has_time_level_words_and_fields(void **state)
{
    const char *line;
    struct tm parts = {0};
    int64_t before = clock_wall_ms(), after, told;

    (void)state;
    setenv("TZ", "Far-5", 1); /* where it is five hours later: the log does not care */
    tzset();
    log_info("listening", log_text("address", "[::1]:7420"), log_number("clients", -3),
             log_bytes("name", "abcdef", 3));
    after = clock_wall_ms();
    line = logged();
    assert_string_equal("info  listening address=[::1]:7420 clients=-3 name=abc\n", line + 25);
    assert_int_equal('Z', line[23]);
    assert_int_equal('.', line[19]);
    assert_ptr_equal(line + 19, strptime(line, "%Y-%m-%dT%H:%M:%S", &parts));
    told = (int64_t)timegm(&parts) * 1000 + strtol(line + 20, NULL, 10);
    assert_true(told >= before && told <= after);

    log_error("e");
    assert_string_equal("error e\n", logged_after_time());
    log_warning("w");
    assert_string_equal("warning w\n", logged_after_time());
}

static void levels_below_the_wanted_are_not_even_looked_at(void **state)
{
    int looked = 0;

    (void)state;
    log_debug("d", log_number("n", ++looked));
    assert_string_equal("", logged());
    assert_int_equal(0, looked);
    log_open(LOG_LEVEL_DEBUG, LOG_FORMAT_TEXT);
    log_debug("d", log_number("n", ++looked));
    assert_string_equal("debug d n=1\n", logged_after_time());
    log_open(LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    log_warning("w");
    log_line(LOG_LEVEL_WARNING, "w", NULL, 0);
    assert_string_equal("", logged());
    assert_true(log_wants(LOG_LEVEL_ERROR));
    assert_false(log_wants(LOG_LEVEL_WARNING));
}

static void values_cannot_pass_for_something_else(void **state)
{
    static const struct {
        const char *value, *shown;
    } cases[] = {
        {"", "v=\"\"\n"},
        {"plain-1.2:3/[x]'", "v=plain-1.2:3/[x]'\n"},
        {"a b", "v=\"a b\"\n"},
        {"a=b", "v=\"a=b\"\n"},
        {"say \"hi\"", "v=\"say \\\"hi\\\"\"\n"},
        {"back\\slash", "v=\"back\\\\slash\"\n"},
        {"x\ny level=error", "v=\"x\\x0ay level=error\"\n"},
        {"\x1b[31mred\x7f", "v=\"\\x1b[31mred\\x7f\"\n"},
        {"gr\xc3\xbc\xc3\x9f", "v=\"gr\xc3\xbc\xc3\x9f\"\n"},
        {"\xf0\x9f\x94\x92", "v=\"\xf0\x9f\x94\x92\"\n"},
        {"\xff\xc3", "v=\"\\xff\\xc3\"\n"},
        {"\xc0\x80\xed\xa0\x80", "v=\"\\xc0\\x80\\xed\\xa0\\x80\"\n"},
        {"\xc2\x9b", "v=\"\\xc2\\x9b\"\n"},                   /* C1: a control sequence begins */
        {"\xe2\x80\xae", "v=\"\\xe2\\x80\\xae\"\n"},          /* right to left from here */
        {"\xe2\x80\xa8", "v=\"\\xe2\\x80\\xa8\"\n"},          /* a separator of lines */
        {"\xe2\x81\xa6", "v=\"\\xe2\\x81\\xa6\"\n"},          /* an isolate */
        {"\xf3\xa0\x80\x81", "v=\"\\xf3\\xa0\\x80\\x81\"\n"}, /* an invisible tag */
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char expected[128];

        log_info("w", log_text("v", cases[i].value));
        snprintf(expected, sizeof expected, "info  w %s", cases[i].shown);
        assert_string_equal(expected, logged_after_time());
    }
    log_info("w", log_bytes("v", "a\0b", 3), log_text("none", NULL));
    assert_string_equal("info  w v=\"a\\x00b\" none=\"\"\n", logged_after_time());
    log_line(LOG_LEVEL_INFO, "bad\nwords\x1b", NULL, 0);
    assert_string_equal("info  bad\\x0awords\\x1b\n", logged_after_time());
}

static void json_is_json(void **state)
{
    const char *line;

    (void)state;
    log_open(LOG_LEVEL_INFO, LOG_FORMAT_JSON);
    log_warning("a \"b\" \\ \n",
                log_text("v", "\x01\x7f\xff\xc2\x9b\xe2\x80\xae\xf3\xa0\x80\x81\xc3\xbc"),
                log_number("n", INT64_MIN), log_bytes("z", "a\0b", 3));
    line = logged();
    assert_memory_equal("{\"time\":\"2", line, 10);
    assert_string_equal("Z\",\"level\":\"warning\",\"message\":\"a \\\"b\\\" \\\\ \\u000a\","
                        "\"v\":\"\\u0001\\u007f\\ufffd\\u009b\\u202e\\udb40\\udc01\xc3\xbc\","
                        "\"n\":-9223372036854775808,\"z\":\"a\\u0000b\"}\n",
                        line + 32);
}

/* Every pair of bytes, in both forms: one line, and nothing that acts. */
static void no_bytes_break_a_line(void **state)
{
    (void)state;
    for (unsigned turn = 0; turn < 512; turn++) {
        char pairs[512];
        const char *line;
        size_t length;

        for (size_t second = 0; second < 256; second++) {
            pairs[2 * second] = (char)turn;
            pairs[2 * second + 1] = (char)second;
        }
        log_open(LOG_LEVEL_INFO, turn < 256 ? LOG_FORMAT_TEXT : LOG_FORMAT_JSON);
        log_info("w", log_bytes("v", pairs, sizeof pairs));
        line = logged();
        length = strlen(line);
        assert_true(length > 500 && line[length - 1] == '\n');
        assert_null(strstr(line, "cut"));
        for (size_t i = 0; i + 1 < length; i++)
            if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
                fail_msg("byte %02x came through after %02x", (unsigned)line[i], turn & 255);
        assert_true(text_is_utf8(line, length));
    }
}

static void long_values_and_long_lines_are_cut_cleanly(void **state)
{
    static char value[LOG_VALUE_MAX + 1], controls[LOG_VALUE_MAX + 1];
    const char *line;

    (void)state;
    memset(value, 'x', sizeof value);
    log_info("w", log_bytes("v", value, LOG_VALUE_MAX));
    line = logged_after_time();
    assert_int_equal(strlen("info  w v=\n") + LOG_VALUE_MAX, strlen(line));
    log_info("w", log_bytes("v", value, sizeof value));
    line = logged_after_time();
    assert_int_equal(strlen("info  w v=...\n") + LOG_VALUE_MAX, strlen(line));
    assert_string_equal("x...\n", line + strlen(line) - 5);
    memcpy(value + LOG_VALUE_MAX - 1, "\xc3\xbc", 2); /* is shown whole, across the limit */
    log_info("w", log_bytes("v", value, sizeof value));
    line = logged_after_time();
    assert_string_equal("x\xc3\xbc\"\n", line + strlen(line) - 5);

    /* 513 controls are 4 or 6 bytes each: as JSON one such value fits a line, two do not. */
    memset(controls, '\n', sizeof controls);
    log_info("w", log_bytes("a", controls, sizeof controls), log_number("b", 1));
    line = logged();
    assert_string_equal("\\x0a...\" b=1\n", line + strlen(line) - 13);
    log_info("w", log_bytes("a", controls, sizeof controls), log_number("b", 1),
             log_bytes("c", controls, sizeof controls), log_number("d", 1));
    line = logged();
    assert_true(strlen(line) <= LOG_LINE_MAX);
    assert_string_equal("\\x0a...\" b=1 cut=true\n", line + strlen(line) - 22);
    log_open(LOG_LEVEL_INFO, LOG_FORMAT_JSON);
    log_info("w", log_bytes("a", controls, sizeof controls), log_number("b", 1),
             log_bytes("c", controls, sizeof controls), log_number("d", 1));
    line = logged();
    assert_true(strlen(line) <= LOG_LINE_MAX);
    assert_string_equal("\\u000a...\",\"b\":1,\"cut\":true}\n", line + strlen(line) - 29);
}

/* Words and values that fill a line to any length: it is never longer than a pipe takes at once. */
static void no_line_is_too_long(void **state)
{
    static char value[LOG_VALUE_MAX];

    (void)state;
    memset(value, 'x', sizeof value);
    for (int json = 0; json < 2; json++)
        for (size_t rest = 0; rest < sizeof value; rest++) {
            struct log_field fields[9];
            const char *line, *end = json ? "}\n" : "\n";
            size_t length;

            log_open(LOG_LEVEL_INFO, json ? LOG_FORMAT_JSON : LOG_FORMAT_TEXT);
            for (size_t i = 0; i < COUNT(fields); i++)
                fields[i] = log_bytes("v", value, sizeof value);
            fields[7].length = rest;
            log_line(LOG_LEVEL_INFO, "w", fields, COUNT(fields));
            line = logged();
            length = strlen(line);
            assert_true(length <= LOG_LINE_MAX);
            assert_string_equal(end, line + length - strlen(end));
            assert_contains(line + 3000, "cut");
        }
}

/* ---- the journal ----------------------------------------------------------------------------- */

static void be_journal(bool really)
{
    struct stat st;
    char stream[64];

    assert_int_equal(0, fstat(STDERR_FILENO, &st));
    snprintf(stream, sizeof stream, "%llu:%llu", (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino + (really ? 0 : 1));
    setenv("JOURNAL_STREAM", stream, 1);
}

static void the_journal_gets_priorities_and_no_time(void **state)
{
    (void)state;
    be_journal(true);
    log_open(LOG_LEVEL_DEBUG, LOG_FORMAT_TEXT);
    log_error("e", log_number("n", 1));
    log_warning("w");
    log_info("i");
    log_debug("d");
    assert_string_equal("<3>e n=1\n<4>w\n<6>i\n<7>d\n", logged());
    log_open(LOG_LEVEL_DEBUG, LOG_FORMAT_JSON);
    log_error("e");
    assert_memory_equal("<3>{\"time\":\"", logged(), 12);
}

static void another_stream_is_not_the_journal(void **state)
{
    (void)state;
    be_journal(false);
    log_open(LOG_LEVEL_DEBUG, LOG_FORMAT_TEXT);
    log_error("e");
    assert_string_equal("error e\n", logged_after_time());
    setenv("JOURNAL_STREAM", "nonsense", 1);
    log_open(LOG_LEVEL_DEBUG, LOG_FORMAT_TEXT);
    log_error("e");
    assert_string_equal("error e\n", logged_after_time());
}

/* ---- masses ---------------------------------------------------------------------------------- */

static void complain(int times)
{
    for (int i = 0; i < times; i++)
        log_limited(LOG_LEVEL_WARNING, 3, "broken framing", log_number("i", i));
}

static void a_mass_of_lines_is_counted_instead(void **state)
{
    const char *lines;

    (void)state;
    later(LOG_LIMIT_MS);
    assert_int_equal(-1, log_tick());
    complain(3);
    assert_int_equal(3, count_lines(logged()));
    assert_int_equal(-1, log_tick()); /* nothing was left out */
    complain(1000);
    assert_string_equal("", logged());
    assert_in_range(log_tick(), 1, LOG_LIMIT_MS);
    assert_string_equal("", logged());
    later(LOG_LIMIT_MS);
    assert_int_equal(-1, log_tick());
    assert_string_equal("warning more lines like this were left out line=\"broken framing\" "
                        "count=1000\n",
                        logged_after_time());
    complain(4);
    lines = logged();
    assert_int_equal(3, count_lines(lines));
    assert_contains(lines, "i=2");
    later(LOG_LIMIT_MS); /* without a tick, the next message brings the count */
    complain(1);
    lines = logged();
    assert_int_equal(2, count_lines(lines));
    assert_contains(lines, "count=1\n");
    assert_contains(strchr(lines, '\n'), "broken framing i=0\n");
}

static void each_place_in_the_program_counts_alone(void **state)
{
    const char *lines;

    (void)state;
    later(LOG_LIMIT_MS);
    complain(10);
    for (int i = 0; i < 5; i++)
        log_limited(LOG_LEVEL_ERROR, 1, "other");
    for (int i = 0; i < 5; i++)
        log_limited(LOG_LEVEL_DEBUG, 1, "not wanted");
    assert_int_equal(4, count_lines(logged()));
    log_close();
    lines = logged();
    assert_int_equal(2, count_lines(lines));
    assert_contains(lines,
                    "warning more lines like this were left out line=\"broken framing\" count=7\n");
    assert_contains(lines, "error more lines like this were left out line=other count=4\n");
    log_close();
    assert_string_equal("", logged());
}

/* ---- a stderr that does not take it ---------------------------------------------------------- */

static void nobody_waits_for_a_reader(void **state)
{
    size_t lines, sent = 2000;
    const char *text, *count;
    char value[200];

    (void)state;
    memset(value, 'x', sizeof value);
    fcntl(STDERR_FILENO, F_SETPIPE_SZ, 65536);
    for (size_t i = 0; i < sent; i++) /* the alarm ends the test if this blocks */
        log_info("w", log_bytes("v", value, sizeof value));
    lines = count_lines(logged());
    assert_in_range(lines, 1, sent - 1);
    log_info("after");
    text = logged();
    assert_int_equal(2, count_lines(text));
    count = strstr(text, "warning lines of this log were lost: stderr did not take them count=");
    assert_non_null(count);
    assert_int_equal(sent - lines, strtol(strstr(count, "count=") + 6, NULL, 10));
    assert_contains(text, "info  after\n");
    log_info("w");
    assert_string_equal("info  w\n", logged_after_time());
}

static void a_reader_that_is_gone_is_no_matter(void **state)
{
    const char *text;

    (void)state;
    close(pipe_out);
    log_info("w");
    log_info("w");
    assert_int_equal(0, make_stderr_a_pipe());
    log_info("back");
    text = logged();
    assert_contains(text, "stderr did not take them count=2\n");
    assert_contains(text, "info  back\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_line_has_time_level_words_and_fields, set_up, tear_down),
        cmocka_unit_test_setup_teardown(levels_below_the_wanted_are_not_even_looked_at, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(values_cannot_pass_for_something_else, set_up, tear_down),
        cmocka_unit_test_setup_teardown(json_is_json, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_bytes_break_a_line, set_up, tear_down),
        cmocka_unit_test_setup_teardown(long_values_and_long_lines_are_cut_cleanly, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(no_line_is_too_long, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_journal_gets_priorities_and_no_time, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_stream_is_not_the_journal, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_mass_of_lines_is_counted_instead, set_up, tear_down),
        cmocka_unit_test_setup_teardown(each_place_in_the_program_counts_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nobody_waits_for_a_reader, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_reader_that_is_gone_is_no_matter, set_up, tear_down),
    };

    signal(SIGPIPE, SIG_IGN); /* as the server does */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
