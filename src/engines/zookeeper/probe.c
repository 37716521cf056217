/* probe.c: why is there no session?
 *
 * The library says nothing about servers that it cannot use. So each is asked for its state, on a connection of its own,
 * with "srvr", which every server answers: with that, or that it is not serving, or that this word is not allowed. One that
 * accepts the connection and says nothing is stopped, or no ZooKeeper. */
#include "base/clock.h"
#include "engines/zookeeper/store.h"
#include "net/stream.h"

#include <poll.h>
#include <string.h>

#define PROBE_MS 300
#define WORD "srvr"
#define NOT_SERVING "not currently serving"
#define READ_ONLY "Mode: read-only" /* to those who ask for that, while it has no majority */

struct probe {
    struct stream *stream; /* NULL: it is done */
    bool connected, asked, answered, serves, reads;
    char reply[1024];
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
    if (got < 0 || probe->size == sizeof probe->reply - 1) {
        probe->answered = probe->size > 0;
        probe->reads = strstr(probe->reply, READ_ONLY);
        probe->serves = probe->answered && !probe->reads && !strstr(probe->reply, NOT_SERVING);
        end(probe);
    }
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

bool probe_servers(struct engine_store *store, struct error_text *ret_why)
{
    struct probe probes[ZK_SERVERS_MAX] = {0};
    int connected = 0, answered = 0, serving = 0, reading = 0;

    for (int i = 0; i < store->address_count; i++)
        if (stream_open(&store->addresses[i], &store->access, &probes[i].stream, NULL) != HF_OK)
            probes[i].stream = NULL;
    run(probes, store->address_count, clock_after(clock_boot_ms(), PROBE_MS));
    for (int i = 0; i < store->address_count; i++) {
        /* Who has not refused by now may still come. */
        connected += probes[i].connected || probes[i].stream;
        answered += probes[i].answered;
        serving += probes[i].serves;
        reading += probes[i].reads;
        end(&probes[i]);
    }
    if (answered > 0)
        store->host->reached(store->host->context);
    if (serving > 0)
        error_write(ret_why, "%d of the ZooKeeper servers at %.300s serve, but no session begins",
                    serving, store->hosts);
    else if (answered > 0)
        error_write(ret_why,
                    "the ZooKeeper servers at %.300s have no majority: %d answered, none serves%s",
                    store->hosts, answered, reading > 0 ? " but read-only" : "");
    else if (connected > 0)
        error_write(ret_why, "what is at %.300s does not answer: it is stopped, or no ZooKeeper",
                    store->hosts);
    else
        error_write(ret_why, "no ZooKeeper server can be reached at %.300s", store->hosts);
    return connected > 0;
}
