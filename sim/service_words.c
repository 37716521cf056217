/* service_words.c: a request of a client, in the words of the protocol. */
#include "sim/service_inside.h"

#include <string.h>

#define TEXT_MAX 32

/* "lease-17". By hand: there is one in each request. */
static void write_numbered(struct resp_writer *words, const char *name, uint64_t number)
{
    char text[TEXT_MAX], *at = text + TEXT_MAX;
    size_t size = strlen(name);

    do {
        *--at = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    at -= size;
    memcpy(at, name, size);
    resp_write_blob(words, at, (size_t)(text + TEXT_MAX - at));
}

static void write_lease(struct resp_writer *words, uint64_t lease)
{
    write_numbered(words, "lease-", lease);
}

static void write_name(struct resp_writer *words, const struct request *request)
{
    write_numbered(words, request->once ? "key-" : "name-", (uint64_t)request->name);
}

static void write_option(struct resp_writer *words, const char *name, uint64_t number)
{
    resp_write_text(words, name);
    resp_write_number(words, (int64_t)number);
}

/* ACQUIRE name lease …, or ONCE CLAIM key lease … */
static void write_acquire(struct resp_writer *words, const struct request *request)
{
    bool waits = request->waits, push = request->waits && request->push;
    bool shared = request->mode == HF_SHARED, permits = request->mode == HF_PERMIT;
    bool delay = request->delay_ms > 0;

    resp_write_array(words, 5u + request->once + (waits ? 2u : 0) + push + shared +
                                (permits ? 2u : 0) + (delay ? 2u : 0));
    resp_write_text(words, request->once ? "ONCE" : "ACQUIRE");
    if (request->once)
        resp_write_text(words, "CLAIM");
    write_name(words, request);
    write_lease(words, request->lease);
    write_option(words, "TTL", request->ttl_ms);
    if (waits) /* WAIT 0 does not */
        write_option(words, "WAIT", request->wait_ms + 1);
    if (push)
        resp_write_text(words, "PUSH");
    if (shared)
        resp_write_text(words, "SHARED");
    if (permits)
        write_option(words, "PERMITS", request->permits);
    if (delay)
        write_option(words, "DELAY", request->delay_ms);
}

/* Each of several leases keeps its own TTL. */
static void write_renew(struct resp_writer *words, const struct request *request)
{
    resp_write_array(words, request->other_count ? 2u + request->other_count : 4);
    resp_write_text(words, "RENEW");
    write_lease(words, request->lease);
    for (uint32_t i = 0; i < request->other_count; i++)
        write_lease(words, request->others[i]);
    if (!request->other_count)
        write_option(words, "TTL", request->ttl_ms);
}

static void write_finish(struct resp_writer *words, const struct request *request)
{
    resp_write_array(words, 9);
    resp_write_text(words, "ONCE");
    resp_write_text(words, "FINISH");
    write_name(words, request);
    write_lease(words, request->lease);
    write_option(words, "TOKEN", request->token);
    write_option(words, "KEEP", request->keep_ms);
    resp_write_number(words, (int64_t)request->result);
}

void service_write(struct resp_writer *words, const struct request *request)
{
    switch (request->ask) {
    case ASK_ACQUIRE:
        write_acquire(words, request);
        break;
    case ASK_RENEW:
        write_renew(words, request);
        break;
    case ASK_FINISH:
        write_finish(words, request);
        break;
    case ASK_RELEASE:
        resp_write_array(words, 5);
        resp_write_text(words, "RELEASE");
        write_name(words, request);
        write_lease(words, request->lease);
        write_option(words, "TOKEN", request->token);
        break;
    case ASK_END:
        resp_write_array(words, 4);
        resp_write_text(words, "END");
        write_lease(words, request->lease);
        write_option(words, "TTL", request->ttl_ms);
        break;
    case ASK_CHECK:
        resp_write_array(words, 3);
        resp_write_text(words, "CHECK");
        write_name(words, request);
        resp_write_number(words, (int64_t)request->token);
        break;
    case ASK_BREAK:
        resp_write_array(words, 2u + request->now);
        resp_write_text(words, "BREAK");
        write_name(words, request);
        if (request->now)
            resp_write_text(words, "NOW");
        break;
    case ASK_FLOOR:
        resp_write_array(words, 2);
        write_option(words, "FLOOR", request->token);
        break;
    case ASK_SHOW:
        resp_write_array(words, 4);
        resp_write_text(words, "SHOW");
        write_name(words, request);
        write_option(words, "WAITERS", 1);
        break;
    case ASK_LOCKS:
        resp_write_array(words, 3);
        resp_write_text(words, "LOCKS");
        write_option(words, "COUNT", LOCKS_COUNT);
        break;
    }
}
