/* cluster_backup.c: holdfast cluster backup: what the leader has, in a file, while it serves. */
#include "base/clock.h"
#include "cli/backup_output.h"
#include "cli/cluster.h"
#include "cli/json.h"
#include "cli/output.h"
#include "cli/signals.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FIRST_TELL_MS 2000
#define NO_ANSWER_MS \
    1000 /* the library asks us after each attempt of 1.5 s: so it is said within 2 s */
#define NEXT_TELL_MS 500

struct backup {
    struct backup_output output;
    struct signals signals;
    int ended_by;          /* a signal; 0: none */
    struct error_text err; /* of our own: what the library says is hf_error() */
    hf_backup_info about;
    char cluster[64];
    const struct cli *cli;
    int64_t wait_ms, begun_ms;
    bool tells; /* how far it is, on a terminal */
    bool told, told_no_answer;
    int64_t tell_ms; /* next */
};

/* ---- how far it is --------------------------------------------------------------------------------- */

/* Once, also without a terminal: cron mails what goes wrong. */
static void tell_no_answer(struct backup *backup, int64_t now_ms)
{
    if (backup->told_no_answer || now_ms - backup->begun_ms < NO_ANSWER_MS)
        return;
    backup->told_no_answer = true;
    say("cluster backup: no answer from %s for %s; trying for up to %s in all",
        printable(hf_info(backup->cli->store)->where), span(now_ms - backup->begun_ms),
        span(backup->wait_ms));
}

/* A snapshot that takes its time is nothing wrong. */
static void tell_why(struct backup *backup, int64_t now_ms)
{
    if (backup->told_no_answer || now_ms - backup->begun_ms < NO_ANSWER_MS)
        return;
    backup->told_no_answer = true;
    say("cluster backup: %s; trying for up to %s in all", hf_error(), span(backup->wait_ms));
}

static void tell(struct backup *backup, const hf_backup_info *info)
{
    int64_t now_ms = clock_boot_ms();

    if (backup->cli->quiet)
        return;
    if (info->total == 0 && hf_reached(backup->cli->store) == 0) {
        tell_no_answer(backup, now_ms);
        return;
    }
    if (info->total == 0 && hf_error()[0])
        tell_why(backup, now_ms);
    if (!backup->tells || now_ms < backup->tell_ms)
        return;
    backup->tell_ms = now_ms + NEXT_TELL_MS;
    backup->told = true;
    if (info->total == 0)
        fprintf(stderr, "\r\033[Kholdfast: waiting for a leader, and its snapshot");
    else
        fprintf(stderr, "\r\033[Kholdfast: %llu of %llu KiB",
                (unsigned long long)(info->offset >> 10), (unsigned long long)(info->total >> 10));
    fflush(stderr);
}

static void tell_no_more(struct backup *backup)
{
    if (backup->told)
        fprintf(stderr, "\r\033[K");
    fflush(stderr);
    backup->told = false;
}

/* ---- what comes ------------------------------------------------------------------------------------ */

static bool is_interrupted(struct backup *backup)
{
    int number;

    while ((number = signals_take(&backup->signals)) != 0)
        if (signals_ends(number))
            backup->ended_by = number;
    return backup->ended_by != 0;
}

static int on_bytes(void *arg, const hf_backup_info *info, const void *bytes, size_t size)
{
    struct backup *backup = arg;

    if (is_interrupted(backup))
        return HF_ECANCELED;
    tell(backup, info);
    if (size == 0)
        return HF_OK;
    backup->about = *info;
    snprintf(backup->cluster, sizeof backup->cluster, "%s", info->cluster);
    return backup_output_write(&backup->output, info->offset, bytes, size, &backup->err);
}

static void say_done(const struct cli *cli, const struct backup *backup)
{
    const hf_backup_info *about = &backup->about;
    struct json json;

    if (backup->output.is_stdout)
        return;
    if (cli->json) {
        json_begin(&json);
        json_string(&json, "file", backup->output.path);
        json_u64(&json, "bytes", about->total);
        json_string(&json, "cluster", backup->cluster);
        json_u64(&json, "index", about->index);
        json_u64(&json, "term", about->term);
        json_end(&json);
    } else if (!cli->quiet) {
        printf("%s: a backup of cluster %s as of entry %llu, %llu bytes\n",
               printable(backup->output.path), printable(backup->cluster),
               (unsigned long long)about->index, (unsigned long long)about->total);
    }
}

/* Our own words say more than that we have broken it off. */
static int say_failed(struct backup *backup, int result)
{
    if (backup->err.text[0])
        say("no backup: %s", backup->err.text);
    else
        say_failure(hf_error());
    return status_of(result);
}

static int take(struct cli *cli, const struct cluster_request *request, struct backup *backup)
{
    int result = backup_output_open(&backup->output, request->words[0], &backup->err);

    if (result == HF_OK)
        result = hf_cluster_backup(cli->store, on_bytes, backup, request->wait_ms);
    if (result == HF_OK)
        result = backup_output_finish(&backup->output, &backup->err);
    tell_no_more(backup);
    backup_output_close(&backup->output);
    return result;
}

int cluster_backup(struct cli *cli, const struct cluster_request *request)
{
    int64_t now_ms = clock_boot_ms();
    struct backup backup = {.cli = cli,
                            .wait_ms = request->wait_ms,
                            .begun_ms = now_ms,
                            .tells = isatty(STDERR_FILENO),
                            .tell_ms = now_ms + FIRST_TELL_MS};
    int result;

    if (!signals_begin_ends(&backup.signals)) {
        say("cannot watch for signals: %s", strerror(errno));
        return EXIT_OURS;
    }
    result = take(cli, request, &backup);
    if (backup.ended_by != 0)
        signals_die(backup.ended_by, false);
    if (result != HF_OK)
        return say_failed(&backup, result);
    say_done(cli, &backup);
    return EXIT_DONE;
}
