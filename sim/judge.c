/* judge.c: lets the simulator's checkers judge what real clients were told. They share no code with the product, nor with whoever wrote the
 * history down: tests/system/chaos does, a line for each request that was answered,
 *
 *     SENT ANSWERED WHO DOUBT WORD... = ANSWER        in milliseconds; DOUBT is 1 if one of its tries got no answer
 *
 * in any order. A client of the checkers is one hold here, from its request to its end. */
#include "sim/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MAX 64
#define LINE_BYTES_MAX 8192
#define QUEUE_NAMES CHECK_NAMES /* names with a queue, at the most */
#define NO_SLOT (-1)

struct request {
    char *text; /* owned; what the words and the answer are in */
    char *words[WORDS_MAX];
    int count;
    const char *answer;
    int64_t sent_us, got_us;
};

struct event {
    int64_t at_us;
    bool told; /* or sent */
    struct request *request;
};

/* A lease has one hold at a time, and is not used again after that. */
struct lease {
    uint64_t token, floor, number;
    int64_t asked_us, until_us, ttl_us;
    int slot, name;
    bool known;
};

struct judge {
    struct check check;
    struct map names, lease_numbers, queues;
    struct lease *leases;
    size_t lease_count, lease_capacity;
    size_t owner[CHECK_CLIENTS]; /* the lease whose hold that is, and 1; 0: free */
    uint64_t requests, grants, too_many;
};

static void *grown(void *old, size_t size)
{
    void *new = realloc(old, size);

    if (!new)
        abort();
    return new;
}

/* ---- words --------------------------------------------------------------------------------------- */

static uint64_t hash(const char *text)
{
    uint64_t hash = 14695981039346656037u;

    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    return hash ? hash : 1;
}

/* A number from 1 on for each text. */
static uint64_t number_of(struct map *map, const char *text)
{
    uint64_t next = map->count + 1, *number = map_at(map, hash(text));

    return *number ? *number : (*number = next);
}

static struct lease *lease_of(struct judge *judge, const char *text)
{
    uint64_t number = number_of(&judge->lease_numbers, text);

    if (number > judge->lease_capacity) {
        size_t before = judge->lease_capacity;

        judge->lease_capacity = before ? before * 2 : 1024;
        judge->leases = grown(judge->leases, judge->lease_capacity * sizeof *judge->leases);
        memset(judge->leases + before, 0, (judge->lease_capacity - before) * sizeof *judge->leases);
    }
    if (number > judge->lease_count) {
        judge->lease_count = number;
        judge->leases[number - 1] = (struct lease){.number = number, .slot = NO_SLOT};
    }
    return &judge->leases[number - 1];
}

static bool is(const struct request *request, const char *word)
{
    return strcmp(request->words[0], word) == 0;
}

/* What follows this word; 0: nothing. */
static int64_t after(const struct request *request, const char *word)
{
    for (int i = 1; i + 1 < request->count; i++)
        if (strcmp(request->words[i], word) == 0)
            return strtoll(request->words[i + 1], NULL, 10);
    return 0;
}

/* ---- holds --------------------------------------------------------------------------------------- */

static bool believes(const struct judge *judge, const struct lease *lease, int64_t now_us)
{
    return lease->slot != NO_SLOT && judge->owner[lease->slot] == lease->number &&
           holders_believes(&judge->check.holders, lease->slot, now_us);
}

static void forget(struct judge *judge, struct lease *lease)
{
    if (lease->slot != NO_SLOT && judge->owner[lease->slot] == lease->number) {
        holders_end(&judge->check.holders, lease->slot);
        queue_left(&judge->check.queue, lease->slot);
        judge->owner[lease->slot] = 0;
    }
    lease->slot = NO_SLOT;
}

/* Whoever's time is over makes room. A place in a queue has none. */
static int free_slot(struct judge *judge, int64_t now_us)
{
    for (int i = 0; i < CHECK_CLIENTS; i++) {
        const struct holder *holder = &judge->check.holders.of[i];

        if (judge->owner[i] && holder->holds && now_us >= holder->until_us)
            forget(judge, &judge->leases[judge->owner[i] - 1]);
        if (!judge->owner[i])
            return i;
    }
    judge->too_many++;
    return NO_SLOT;
}

static bool place(struct judge *judge, struct lease *lease, int64_t now_us)
{
    if (lease->slot == NO_SLOT && (lease->slot = free_slot(judge, now_us)) != NO_SLOT)
        judge->owner[lease->slot] = lease->number;
    return lease->slot != NO_SLOT;
}

static void granted(struct judge *judge, const struct request *request, uint64_t token)
{
    struct check *check = &judge->check;
    struct lease *lease = lease_of(judge, request->words[2]);
    const uint64_t *known = map_find(&judge->queues, hash(request->words[1]));
    uint64_t queue = known ? *known : 0;

    if (lease->token && (lease->token == token || request->got_us >= lease->until_us))
        return; /* asked once more: the same, or it was over meanwhile, and its client knew */
    tokens_told(&check->tokens, &check->verdict, lease->number, token, lease->floor);
    if (lease->token)
        return;
    lease->token = token;
    judge->grants++;
    if (request->got_us >= lease->until_us) { /* so late that its client never believed it */
        forget(judge, lease);
        return;
    }
    if (!place(judge, lease, request->got_us))
        return;
    if (queue && queue <= QUEUE_NAMES)
        queue_granted(&check->queue, &check->verdict, lease->slot, (int)queue - 1, lease->number,
                      token, lease->asked_us);
    holders_begin(&check->holders, &check->verdict, request->got_us, lease->slot,
                  &(struct holder){.name = lease->name,
                                   .mode = CHECK_EXCLUSIVE,
                                   .token = token,
                                   .until_us = lease->until_us,
                                   .asked_us = lease->asked_us});
}

/* ---- events -------------------------------------------------------------------------------------- */

static void sent(struct judge *judge, const struct request *request)
{
    struct lease *lease;

    if (is(request, "ACQUIRE") && request->count > 2) {
        lease = lease_of(judge, request->words[2]);
        if (lease->known)
            return;
        lease->known = true;
        lease->name = (int)number_of(&judge->names, request->words[1]);
        lease->floor = tokens_floor(&judge->check.tokens);
        lease->asked_us = request->sent_us;
        lease->ttl_us = after(request, "TTL") * 1000;
        lease->until_us = request->sent_us + lease->ttl_us;
    } else if (is(request, "RELEASE") && request->count > 2) {
        lease = lease_of(judge, request->words[2]);
        if (lease->token == (uint64_t)after(request, "TOKEN"))
            forget(judge, lease);
    }
}

static void acquired(struct judge *judge, const struct request *request)
{
    struct lease *lease = lease_of(judge, request->words[2]);

    if (strcmp(request->answer, "QUEUED") == 0) {
        uint64_t queue = number_of(&judge->queues, request->words[1]);

        if (queue <= QUEUE_NAMES && place(judge, lease, request->got_us))
            queue_told(&judge->check.queue, lease->slot, lease->number, 1, request->got_us);
    } else if (strtoull(request->answer, NULL, 10) > 0)
        granted(judge, request, strtoull(request->answer, NULL, 10));
}

/* [ms, ms, …]: for each lease how long it lives now, or -1. */
static void renewed(struct judge *judge, const struct request *request)
{
    const char *at = strchr(request->answer, '[');

    for (int i = 1; at && i < request->count; i++, at = strchr(at + 1, ',')) {
        struct lease *lease = lease_of(judge, request->words[i]);

        if (!believes(judge, lease, request->got_us))
            continue;
        if (strtoll(at + 1, NULL, 10) < 0) {
            leases_gone(&judge->check.verdict, request->got_us, lease->number, lease->until_us);
            forget(judge, lease);
        } else if (request->sent_us + lease->ttl_us > lease->until_us) {
            lease->until_us = request->sent_us + lease->ttl_us;
            holders_extend(&judge->check.holders, lease->slot, lease->until_us);
        }
    }
}

static struct lease *holder_of(struct judge *judge, uint64_t token, int64_t now_us)
{
    for (int i = 0; i < CHECK_CLIENTS; i++)
        if (judge->owner[i] && judge->check.holders.of[i].token == token &&
            believes(judge, &judge->leases[judge->owner[i] - 1], now_us))
            return &judge->leases[judge->owner[i] - 1];
    return NULL;
}

static void checked(struct judge *judge, const struct request *request)
{
    struct check *check = &judge->check;
    uint64_t token = strtoull(request->words[2], NULL, 10);
    struct lease *lease;

    if (strcmp(request->answer, "1") == 0)
        ends_alive(&check->ends, &check->verdict, token, request->sent_us);
    else if ((lease = holder_of(judge, token, request->got_us))) {
        leases_gone(&check->verdict, request->got_us, lease->number, lease->until_us);
        forget(judge, lease);
    }
}

static void told(struct judge *judge, const struct request *request)
{
    judge->requests++;
    if (is(request, "RENEW"))
        renewed(judge, request);
    else if (is(request, "END"))
        tokens_ended(&judge->check.tokens, lease_of(judge, request->words[1])->number);
    else if (request->count < 3)
        return;
    else if (is(request, "ACQUIRE"))
        acquired(judge, request);
    else if (is(request, "GRANTED"))
        granted(judge, request, strtoull(request->answer, NULL, 10));
    else if (is(request, "RELEASE"))
        ends_told(&judge->check.ends, (uint64_t)after(request, "TOKEN"), request->got_us);
    else if (is(request, "CHECK"))
        checked(judge, request);
}

/* ---- the file ------------------------------------------------------------------------------------ */

/* SENT ANSWERED WHO DOUBT: where the request begins, or NULL. */
static const char *parse_head(const char *line, struct request *request)
{
    char *at, *end;

    request->sent_us = (int64_t)(strtod(line, &at) * 1000);
    request->got_us = (int64_t)(strtod(at, &end) * 1000);
    if (at == line || end == at)
        return NULL;
    end += strspn(end, " ");
    end += strcspn(end, " ");
    strtol(end, &at, 10);
    return at > end && *at == ' ' ? at + 1 : NULL;
}

/* False: this is no line of a history. */
static bool parse(const char *line, struct request *ret_request)
{
    struct request request = {0};
    const char *rest = parse_head(line, &request);
    char *at, *word;

    if (!rest)
        return false;
    request.text = strdup(rest);
    if (!request.text)
        abort();
    request.text[strcspn(request.text, "\n")] = '\0';
    at = strstr(request.text, " = ");
    if (at) {
        *at = '\0';
        request.answer = at + 3;
        for (at = request.text; request.count < WORDS_MAX && (word = strtok_r(at, " ", &at));)
            request.words[request.count++] = word;
    }
    if (request.count < 2) {
        free(request.text);
        return false;
    }
    *ret_request = request;
    return true;
}

static size_t read_all(FILE *file, struct request **ret_requests)
{
    struct request *requests = NULL;
    size_t count = 0, capacity = 0, line = 0;
    static char text[LINE_BYTES_MAX];

    while (fgets(text, sizeof text, file)) {
        line++;
        if (count == capacity) {
            capacity = capacity ? capacity * 2 : 1024;
            requests = grown(requests, capacity * sizeof *requests);
        }
        if (parse(text, &requests[count]))
            count++;
        else
            fprintf(stderr, "line %zu is not of a history, and is left out\n", line);
    }
    *ret_requests = requests;
    return count;
}

/* Of what has the same time, answers come first: what is known by then counts as known. */
static int by_time(const void *a, const void *b)
{
    const struct event *one = a, *other = b;

    if (one->at_us != other->at_us)
        return one->at_us < other->at_us ? -1 : 1;
    return (int)other->told - (int)one->told;
}

static void judge_all(struct judge *judge, struct request *requests, size_t count)
{
    struct event *events = grown(NULL, (2 * count + 1) * sizeof *events);

    for (size_t i = 0; i < count; i++) {
        events[2 * i] = (struct event){requests[i].sent_us, false, &requests[i]};
        events[2 * i + 1] = (struct event){requests[i].got_us, true, &requests[i]};
    }
    qsort(events, 2 * count, sizeof *events, by_time);
    for (size_t i = 0; i < 2 * count && !judge->check.verdict.words[0]; i++)
        (events[i].told ? told : sent)(judge, events[i].request);
    free(events);
}

int main(int argc, char **argv)
{
    static struct judge judge;
    struct request *requests;
    FILE *file = argc == 2 ? fopen(argv[1], "re") : NULL;
    size_t count;

    if (!file) {
        fprintf(stderr, "usage: holdfast-judge HISTORY\n");
        return 2;
    }
    count = read_all(file, &requests);
    fclose(file);
    judge_all(&judge, requests, count);
    printf("%llu requests and %llu grants judged (%llu holds were too many at once): %s\n",
           (unsigned long long)judge.requests, (unsigned long long)judge.grants,
           (unsigned long long)judge.too_many,
           judge.check.verdict.words[0] ? judge.check.verdict.words : "nothing is wrong");
    for (size_t i = 0; i < count; i++)
        free(requests[i].text);
    free(requests);
    free(judge.leases);
    map_free(&judge.names);
    map_free(&judge.lease_numbers);
    map_free(&judge.queues);
    tokens_free(&judge.check.tokens);
    ends_free(&judge.check.ends);
    return judge.check.verdict.words[0] ? 1 : count == 0 ? 2 : 0;
}
