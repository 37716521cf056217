#include "cli/output.h"
#include "base/clock.h"
#include "base/text.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES 4096
#define PRINTABLE_MAX 2100 /* 512 bytes, each as \xNN, and the NUL */
#define ROTATING 4

void say(const char *format, ...)
{
    char line[LINE_MAX_BYTES] = "holdfast: ";
    size_t used = strlen(line);
    va_list list;
    int length;

    va_start(list, format);
    length = vsnprintf(line + used, sizeof line - used - 1, format, list);
    va_end(list);
    if (length < 0)
        return;
    used += (size_t)length < sizeof line - used - 1 ? (size_t)length : sizeof line - used - 2;
    line[used++] = '\n';
    while (write(STDERR_FILENO, line, used) < 0 && errno == EINTR)
        ;
}

int status_of(int result)
{
    switch (result) {
    case HF_OK:
        return EXIT_DONE;
    case HF_EBUSY:
        return EXIT_BUSY;
    case HF_ELOST:
        return EXIT_NOT;
    case HF_ESTALE:
        return EXIT_LOST;
    case HF_EINVAL:
    case HF_ENOTSUP:
    case HF_ESTORE:
        return EXIT_USAGE;
    case HF_EWEAK:
        return EXIT_WEAK;
    case HF_EREFUSED:
    case HF_EMODE:
        return EXIT_REFUSED;
    case HF_EUNKNOWN:
    case HF_EUNREACH:
    case HF_EIO:
    case HF_EMODULE:
    case HF_ENOMEM:
        return EXIT_UNAVAILABLE;
    default:
        return EXIT_OURS;
    }
}

const char *leader_advice(const char *words)
{
    return strstr(words,
                  "there is no leader at the moment") /* of a holdfastd: session_host.c there */
               ? " ('holdfast cluster status' says which nodes are missing)"
               : "";
}

void say_failure(const char *words)
{
    say("%s%s", words, leader_advice(words));
}

int say_result(int result)
{
    say_failure(hf_error());
    return status_of(result);
}

/* Length of a UTF-8 character at `at` that may be shown as it is, else 0. */
static size_t plain_character(const char *at, size_t left)
{
    unsigned char c = (unsigned char)*at;
    size_t length = c < 0x80 ? 1 : c >> 5 == 6 ? 2 : c >> 4 == 14 ? 3 : c >> 3 == 30 ? 4 : 0;
    unsigned char second, third;

    if (length == 0 || length > left || c < 0x20 || c == 0x7f || !text_is_utf8(at, length))
        return 0;
    second = length > 1 ? (unsigned char)at[1] : 0;
    third = length > 2 ? (unsigned char)at[2] : 0;
    if (c == 0xc2 && second < 0xa0)
        return 0; /* C1 controls: terminals obey them */
    if (c == 0xe2 && second == 0x80 && (third == 0x8e || third == 0x8f || third >= 0xa8) &&
        third <= 0xae)
        return 0; /* line separators and bidi marks: a name must not redraw the line it is in */
    if (c == 0xe2 && second == 0x81 && third >= 0xa6 && third <= 0xa9)
        return 0;
    return length;
}

const char *printable(const char *text)
{
    static char buffers[ROTATING][PRINTABLE_MAX];
    static unsigned turn;
    char *out = buffers[turn++ % ROTATING];
    size_t used = 0, left = text ? strlen(text) : 0;

    while (left > 0 && used + 5 < PRINTABLE_MAX) {
        size_t n = plain_character(text, left);

        if (n > 0) {
            memcpy(out + used, text, n);
            used += n;
        } else {
            n = 1;
            used += (size_t)snprintf(out + used, PRINTABLE_MAX - used, "\\x%02x",
                                     (unsigned)(unsigned char)*text);
        }
        text += n;
        left -= n;
    }
    out[used] = '\0';
    return out;
}

const char *mode_name(int mode)
{
    return mode == HF_SHARED ? "shared" : mode == HF_PERMIT ? "permit" : "exclusive";
}

const char *span(int64_t ms)
{
    static char buffers[ROTATING][TEXT_SPAN_MAX];
    static unsigned turn;
    char *out = buffers[turn++ % ROTATING];

    if (ms < 0)
        return "?";
    if (ms == HF_UNLIMITED)
        return "no limit";
    text_from_ms(ms, out);
    return out;
}

const char *clock_time(int64_t age_ms)
{
    static char text[32];
    int64_t wall_ms = clock_wall_ms();
    time_t when = (time_t)((wall_ms - age_ms) / 1000);
    struct tm local;
    /* The date too when it was not today: "since 02:14" of the day before yesterday misleads. */
    const char *format = age_ms >= 86400000 ? "%Y-%m-%d %H:%M:%S" : "%H:%M:%S";

    if (!localtime_r(&when, &local) || strftime(text, sizeof text, format, &local) == 0)
        return "?";
    return text;
}

void describe_withheld(const hf_report *report, char *ret_text, size_t size)
{
    ret_text[0] = '\0';
    for (size_t i = 0; i < hf_report_count(report); i++) {
        const hf_entry *entry = hf_report_entry(report, i);

        if (entry->kind != HF_ENTRY_WITHHELD)
            continue;
        if (entry->withheld == HF_WITHHELD_ENTERED)
            snprintf(ret_text, size, "withheld until an open transaction of its last holder ends");
        else if (entry->withheld == HF_WITHHELD_OTHER)
            snprintf(ret_text, size,
                     "withheld for the TTL of a hold from before a floor or a promotion");
        else if (entry->left_ms >= 0)
            snprintf(ret_text, size, "withheld after a break or a lock-delay, for another %s",
                     span(entry->left_ms));
        else
            snprintf(ret_text, size, "withheld after a break or a lock-delay");
        return;
    }
}

bool ages_are_least(hf_store *store)
{
    return strcmp(hf_info(store)->scheme, "holdfast") == 0;
}

static void describe_age(hf_store *store, int64_t age_ms, char *ret_text, size_t size)
{
    if (ages_are_least(store))
        snprintf(ret_text, size, "for at least %s", span(age_ms));
    else
        snprintf(ret_text, size, "since %s (%s)", clock_time(age_ms), span(age_ms));
}

bool holder_has_ended(hf_store *store, const hf_entry *entry)
{
    return (hf_info(store)->features & HF_HAS_PASS_FD) && entry->kind == HF_ENTRY_HOLDER &&
           entry->pid > 0 && entry->pid <= INT32_MAX && kill((pid_t)entry->pid, 0) < 0 &&
           errno == ESRCH;
}

void describe_holder(hf_store *store, const hf_entry *entry, char *ret_text, size_t size)
{
    const char *owner = *entry->owner ? printable(entry->owner) : "somebody";
    char age[80];

    describe_age(store, entry->age_ms, age, sizeof age);
    snprintf(ret_text, size, "%s, token %llu%s%s", owner, (unsigned long long)entry->token,
             entry->age_ms < 0 ? "" : ", ", entry->age_ms < 0 ? "" : age);
}

/* Why stdout did not take something; 0: not known. What comes after it may be taken, or fail otherwise. */
static int output_failure;

void flush_output(void)
{
    if (fflush(stdout) != 0 && output_failure == 0)
        output_failure = errno;
}

int finish_output(int status)
{
    static bool said; /* main asks, too */

    flush_output();
    if (output_failure == 0 && !ferror(stdout))
        return status;
    if (said)
        return EXIT_UNAVAILABLE;
    said = true;
    say("cannot write the output%s%s", output_failure ? ": " : "",
        output_failure ? strerror(output_failure) : "");
    return EXIT_UNAVAILABLE;
}

void table_begin(struct table *table, int columns)
{
    *table = (struct table){.columns = columns};
}

void table_cell(struct table *table, const char *text)
{
    if (table->used == table->room) {
        size_t room = table->room ? table->room * 2 : 64;
        char **cells = realloc(table->cells, room * sizeof *cells);

        if (!cells) {
            table->failed = true;
            return;
        }
        table->cells = cells;
        table->room = room;
    }
    table->cells[table->used] = strdup(text);
    if (!table->cells[table->used])
        table->failed = true;
    else
        table->used++;
}

/* Characters, not bytes, so that names with umlauts line up. */
static size_t width(const char *text)
{
    size_t count = 0;

    for (; *text; text++)
        count += ((unsigned char)*text & 0xc0) != 0x80;
    return count;
}

int table_end(struct table *table)
{
    size_t columns = (size_t)table->columns, widths[TABLE_COLUMNS_MAX] = {0};

    for (size_t i = 0; i < table->used; i++)
        if (widths[i % columns] < width(table->cells[i]))
            widths[i % columns] = width(table->cells[i]);
    for (size_t i = 0; i < table->used; i++) {
        bool last = i % columns == columns - 1;
        int pad = last ? 0 : (int)(widths[i % columns] - width(table->cells[i])) + 2;

        printf("%s%*s%s", table->cells[i], pad, "", last ? "\n" : "");
    }
    for (size_t i = 0; i < table->used; i++)
        free(table->cells[i]);
    free(table->cells);
    if (!table->failed)
        return EXIT_DONE;
    say("out of memory");
    return EXIT_UNAVAILABLE;
}
