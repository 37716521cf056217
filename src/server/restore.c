/* restore.c: holdfastd --restore-from: makes a data directory from a backup, and ends. */
#include "server/restore.h"
#include "base/clock.h"
#include "base/random.h"
#include "core/core.h"
#include "node/restore.h"
#include "server/config.h"
#include "server/initial_members.h"

#include <inttypes.h>
#include <signal.h>
#include <time.h>

#define EXIT_REFUSED 69 /* sysexits.h: as when a directory cannot be used by the server */

static void fill(void *bytes, unsigned size)
{
    random_fill(bytes, size);
}

/* For people: nothing is decided by it. */
static void write_time(char *ret_text, size_t size)
{
    time_t now = time(NULL);
    struct tm parts;

    gmtime_r(&now, &parts);
    strftime(ret_text, size, "%Y-%m-%dT%H:%M:%SZ", &parts);
}

/* Word for word: it is another node now, and the id and members of the copy's own start are wrong. */
static void print_next(const struct config *config, const struct restore_result *found)
{
    const struct config_member *own = initial_members_find(&config->cluster, config->id);
    char was[80] = "";

    if (found->id != 0 && found->id != config->id)
        snprintf(was, sizeof was, "The copy was of node %" PRIu64 ", and is node %" PRIu64 " now. ",
                 found->id, config->id);
    if (own)
        printf("%sStart it with itself as the only member, --data %s --id %" PRIu64
               " --cluster %" PRIu64
               "=%s, and add the others, empty, with 'holdfast cluster add'.\n",
               was, config->data, config->id, config->id, own->address);
    else
        printf("%sStart it with --data %s --id %" PRIu64
               ", without --cluster; else as before. To make it a cluster, start it with --cluster "
               "%" PRIu64 "=HOST:PORT, and add others, empty, with 'holdfast cluster add'.\n",
               was, config->data, config->id, config->id);
}

int restore_backup(const struct config *config)
{
    const struct config_member *own = initial_members_find(&config->cluster, config->id);
    char when[32];
    struct restore_options options = {.source = config->restore_from,
                                      .target = config->data,
                                      .id = config->id,
                                      .address = own ? own->address : "",
                                      .when = when,
                                      .clock = clock_first_token(clock_wall_us()),
                                      .random = fill};
    struct restore_result found;
    struct error_text err = {""};
    bool clock_is_wrong = options.clock == 0;

    if (clock_is_wrong) {
        fill(&options.clock, sizeof options.clock);
        options.clock %= CORE_RESTORE_JUMP;
    }
    if (config->data_is_default) { /* which may be where a server keeps what it has */
        fprintf(stderr, "holdfastd: not restored: into which directory? Name a new one with "
                        "--data DIR\n");
        return CONFIG_USAGE;
    }
    signal(SIGXFSZ, SIG_IGN);
    write_time(when, sizeof when);
    if (config_check_data(config, &err) != HF_OK ||
        restore_directory(&options, &found, &err) != HF_OK) {
        fprintf(stderr, "holdfastd: not restored: %s\n", err.text);
        return EXIT_REFUSED;
    }
    printf(
        "%s is restored from %s, as a store and a cluster of its own: its last token was %" PRIu64
        ", the next ones are above %" PRIu64 ", and %u %s held.\n",
        config->data, config->restore_from, found.token, found.next, found.holds,
        found.holds == 1 ? "lock is" : "locks are");
    if (clock_is_wrong)
        fprintf(
            stderr,
            "holdfastd: the wall clock is obviously wrong, so that these tokens may be below those "
            "of "
            "another restore, or of a store that is newer than the copy: raise them with 'holdfast "
            "floor' before anybody acquires a lock\n");
    print_next(config, &found);
    return fflush(stdout) == 0 ? 0 : 74;
}
