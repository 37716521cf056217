/* probe.c: why is there no session?
 *
 * The library says nothing about servers that it cannot use. So each is asked for its state, on a connection of its own,
 * with "srvr", which every server answers: with that, or that it is not serving, or that this word is not allowed. Whatever
 * answers something else is no ZooKeeper server, and never will be one: it is not waited for. One that accepts the
 * connection and says nothing may be one that is stopped. */
#include "base/clock.h"
#include "engines/zookeeper/store.h"
#include "net/stream.h"

#include <poll.h>
#include <string.h>

#define PROBE_MS 300
#define WORD "srvr"
#define STATE "Zookeeper version: " /* begins the answer */
#define NOT_ALLOWED "is not executed because it is not in the whitelist"
#define NOT_SERVING "not currently serving"
#define READ_ONLY "Mode: read-only" /* to those who ask for that, while it has no majority */
#define QUOTE_MAX 60                /* bytes of somebody else's answer that are shown */

enum verdict {
    PROBE_NOBODY, /* the connection was refused */
    PROBE_SILENT, /* or not refused yet */
    PROBE_FOREIGN,
    PROBE_NOT_SERVING,
    PROBE_READ_ONLY,
    PROBE_SERVING,
    PROBE_VERDICTS
};

struct probe {
    struct stream *stream; /* NULL: it is done */
    bool connected, asked;
    char reply[1024]; /* with a NUL behind */
    size_t size;
};

static void end(struct probe *probe)
{
    stream_close(probe->stream);
    probe->stream = NULL;
}

static void step(struct probe *probe)
{
    int result = probe->connected ? HF_OK : stream_connect(probe->stream, NULL);
    ssize_t got;

    if (result == STREAM_AGAIN)
        return;
    if (result != HF_OK) {
        end(probe);
        return;
    }
    probe->connected = true;
    if (!probe->asked) /* so few bytes are taken at once */
        probe->asked =
            stream_write(probe->stream, WORD, strlen(WORD), NULL) == (ssize_t)strlen(WORD);
    do {
        got = stream_read(probe->stream, probe->reply + probe->size,
                          sizeof probe->reply - 1 - probe->size, NULL);
        probe->size += got > 0 ? (size_t)got : 0;
    } while (got > 0 && probe->size < sizeof probe->reply - 1);
    if (got < 0 || probe->size == sizeof probe->reply - 1)
        end(probe);
}

/* By what has come of its answer in the time that there was. */
static enum verdict judge(const struct probe *probe)
{
    if (probe->size == 0)
        return probe->connected || probe->stream ? PROBE_SILENT : PROBE_NOBODY;
    if (strstr(probe->reply, NOT_SERVING))
        return PROBE_NOT_SERVING;
    if (strstr(probe->reply, NOT_ALLOWED))
        return PROBE_SERVING;
    if (strncmp(probe->reply, STATE, strlen(STATE)) != 0)
        return PROBE_FOREIGN;
    return strstr(probe->reply, READ_ONLY) ? PROBE_READ_ONLY : PROBE_SERVING;
}

static void run(struct probe *probes, int count, int64_t deadline_ms)
{
    for (;;) {
        struct pollfd fds[ZK_SERVERS_MAX];
        int64_t left_ms = deadline_ms - clock_boot_ms();
        int open = 0;

        for (int i = 0; i < count; i++) {
            fds[i] = (struct pollfd){.fd = -1};
            if (!probes[i].stream)
                continue;
            fds[i].fd = stream_fd(probes[i].stream);
            fds[i].events = stream_events(probes[i].stream, !probes[i].asked);
            open++;
        }
        if (open == 0 || left_ms <= 0 || poll(fds, (nfds_t)count, (int)left_ms) <= 0)
            return;
        for (int i = 0; i < count; i++)
            if (fds[i].revents && probes[i].stream)
                step(&probes[i]);
    }
}

/* The first line of an answer, as far as it can be shown. */
static void quote(const struct probe *probe, char ret_text[QUOTE_MAX + 1])
{
    size_t length = 0;

    for (const char *at = probe->reply; *at && !strchr("\r\n", *at) && length < QUOTE_MAX; at++)
        ret_text[length++] = (char)(*at >= ' ' && *at <= '~' ? *at : '?');
    ret_text[length] = '\0';
}

static void explain(const struct engine_store *store, const int counts[PROBE_VERDICTS],
                    const struct address *foreign, const char *quoted, struct error_text *ret_why)
{
    int answered = counts[PROBE_NOT_SERVING] + counts[PROBE_READ_ONLY];

    if (counts[PROBE_SERVING] > 0)
        error_write(ret_why, "%d of the ZooKeeper servers at %.300s serve, but no session begins",
                    counts[PROBE_SERVING], store->hosts);
    else if (answered > 0)
        error_write(ret_why,
                    "the ZooKeeper servers at %.300s have no majority: %d answered, none serves%s",
                    store->hosts, answered, counts[PROBE_READ_ONLY] > 0 ? " but read-only" : "");
    else if (foreign)
        error_write(ret_why,
                    "what is at %.300s is no ZooKeeper server: asked for its state, it says '%s'; "
                    "look at the host and port in the URL",
                    foreign->shown, quoted);
    else if (counts[PROBE_SILENT] > 0)
        error_write(ret_why, "what is at %.300s does not answer: it is stopped, or no ZooKeeper",
                    store->hosts);
    else
        error_write(ret_why, "no ZooKeeper server can be reached at %.300s", store->hosts);
}

bool probe_servers(struct engine_store *store, struct error_text *ret_why)
{
    struct probe probes[ZK_SERVERS_MAX] = {0};
    const struct address *foreign = NULL;
    int counts[PROBE_VERDICTS] = {0}, answered;
    char quoted[QUOTE_MAX + 1] = "";

    for (int i = 0; i < store->address_count; i++)
        if (stream_open(&store->addresses[i], &store->access, NULL, &probes[i].stream, NULL) !=
            HF_OK)
            probes[i].stream = NULL;
    run(probes, store->address_count, clock_after(clock_boot_ms(), PROBE_MS));
    for (int i = 0; i < store->address_count; i++) {
        enum verdict verdict = judge(&probes[i]);

        counts[verdict]++;
        if (verdict == PROBE_FOREIGN && !foreign) {
            foreign = &store->addresses[i];
            quote(&probes[i], quoted);
        }
        end(&probes[i]);
    }
    answered = counts[PROBE_NOT_SERVING] + counts[PROBE_READ_ONLY] + counts[PROBE_SERVING];
    if (answered > 0)
        store->host->reached(store->host->context);
    explain(store, counts, foreign, quoted, ret_why);
    return answered + counts[PROBE_SILENT] > 0;
}
