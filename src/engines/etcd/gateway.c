/* gateway.c: requests to the JSON gateway of any of the endpoints.
 *
 *     ask the current endpoint ──▶ an answer
 *        │ refused, silent, without a leader: the next one is current
 *        └──▶ … all have been asked: pause, and again, until the deadline (not if nobody ever was there)
 *
 * A request that may have been sent, and got no answer, leaves its outcome in doubt; those that do no harm twice are asked again
 * elsewhere. A server is given up after the URL's timeout, or half of what is left. */
#include "base/clock.h"
#include "base/text.h"
#include "engines/etcd/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ATTEMPT_MIN_MS 50
#define PAUSE_MS 20 /* after all have been asked; doubles */
#define PAUSE_MS_MAX 200
#define VERSION_MS 500

struct buffer {
    char *bytes;
    size_t size, room;
};

/* ---- one attempt ----------------------------------------------------------------------------- */

static size_t collect(char *bytes, size_t one, size_t size, void *context)
{
    struct buffer *buffer = context;
    size_t room = buffer->room ? buffer->room : 4096;
    char *grown;

    (void)one;
    if (size > ETCD_ANSWER_MAX - buffer->size)
        return 0;
    while (room < buffer->size + size)
        room *= 2;
    if (room != buffer->room) {
        grown = realloc(buffer->bytes, room);
        if (!grown)
            return 0;
        buffer->bytes = grown;
        buffer->room = room;
    }
    memcpy(buffer->bytes + buffer->size, bytes, size);
    buffer->size += size;
    return size;
}

struct attempt {
    struct engine_store *store;
    struct endpoint *at;
    const char *path, *body;
    bool nameless;    /* without a token: one that has run out would be refused even here */
    int64_t limit_ms; /* how long it may take */
    const _Atomic bool *interrupted; /* or NULL: ends it, too */
    json_t *answer;                  /* of HF_OK */
    int code;                        /* of VERDICT_FINAL */
    struct error_text *err;
};

static void note_reached(struct engine_store *store)
{
    atomic_store(&store->reached, true);
    if (store->host->reached)
        store->host->reached(store->host->context);
}

/* Whatever is there, it is not etcd, and will not become it while we wait. */
static enum verdict refuse_foreign(struct attempt *attempt, const char *what)
{
    attempt->code =
        error_set(attempt->err, HF_EREFUSED, "%s: %s: this is not the gateway of etcd 3.4 or later",
                  attempt->at->address.shown, what);
    return VERDICT_FINAL;
}

/* An answer came, whole. */
static enum verdict read_answer(struct attempt *attempt, long status, const struct buffer *buffer)
{
    struct engine_store *store = attempt->store;
    const json_t *header;
    int64_t cluster = 0;

    if (status != 200) {
        enum verdict verdict = etcd_error_read(attempt->at, status, buffer->bytes, buffer->size,
                                               &store->access, &attempt->code, attempt->err);

        if (verdict != VERDICT_FOREIGN)
            note_reached(store);
        return verdict;
    }
    attempt->code = HF_OK;
    attempt->answer = json_loadb(buffer->bytes ? buffer->bytes : "", buffer->size, 0, NULL);
    header = json_object_get(attempt->answer, "header");
    if (!json_is_object(header) || !json_number(header, "cluster_id", &cluster)) {
        json_decref(attempt->answer);
        attempt->answer = NULL;
        if (!atomic_load(&store->reached))
            return refuse_foreign(attempt, "an answer that is not etcd's");
        attempt->code = error_set(attempt->err, HF_EINTERNAL, "%s: an answer that is not etcd's",
                                  attempt->at->address.shown);
        return VERDICT_FINAL;
    }
    note_reached(store);
    etcd_note_cluster(store, (uint64_t)cluster);
    return VERDICT_FINAL;
}

/* A connection has less time than an answer: a server that is not there is left sooner. */
static void timeout_words(const struct attempt *attempt, CURL *curl)
{
    curl_off_t connected_us = 0, lasted_us = 0;
    char span[TEXT_SPAN_MAX];

    curl_easy_getinfo(curl, CURLINFO_CONNECT_TIME_T, &connected_us);
    curl_easy_getinfo(curl, CURLINFO_TOTAL_TIME_T, &lasted_us);
    text_from_ms(lasted_us / 1000, span);
    error_write(attempt->err, "%s: no %s within %s", attempt->at->address.shown,
                connected_us > 0 ? "answer" : "connection", span);
}

static enum verdict read_failure(struct attempt *attempt, CURL *curl, CURLcode failed,
                                 const char *words)
{
    long sent = 0;

    curl_easy_getinfo(curl, CURLINFO_REQUEST_SIZE, &sent);
    if ((failed == CURLE_UNSUPPORTED_PROTOCOL || failed == CURLE_WEIRD_SERVER_REPLY) && sent > 0)
        return refuse_foreign(attempt, "it does not speak HTTP");
    if (failed == CURLE_OPERATION_TIMEDOUT)
        timeout_words(attempt, curl);
    else if (failed == CURLE_ABORTED_BY_CALLBACK)
        error_write(attempt->err, "%s: the connection ended before an answer came",
                    attempt->at->address.shown);
    else if (failed == CURLE_SSL_CONNECT_ERROR) /* its words may end with a space */
        error_write(attempt->err,
                    "%s: no TLS (%s): does it speak TLS at this port? (etcd:// is without)",
                    attempt->at->address.shown, words[0] ? words : curl_easy_strerror(failed));
    else
        error_write(attempt->err, "%s: %s", attempt->at->address.shown,
                    words[0] ? words : curl_easy_strerror(failed));
    if (failed == CURLE_WRITE_ERROR || failed == CURLE_OUT_OF_MEMORY) {
        attempt->code = error_set(attempt->err, HF_EINTERNAL, "%s: an answer that is too large",
                                  attempt->at->address.shown);
        return VERDICT_FINAL;
    }
    return sent > 0 ? VERDICT_UNSURE : VERDICT_ELSEWHERE;
}

static enum verdict try_once(struct attempt *attempt)
{
    struct engine_store *store = attempt->store;
    struct handle *handle = handle_take(store);
    struct curl_slist *headers = gateway_headers(store, !attempt->nameless);
    struct buffer buffer = {0};
    char url[sizeof attempt->at->url + 64], words[CURL_ERROR_SIZE] = "";
    enum verdict verdict = VERDICT_FINAL;
    CURLcode failed;
    long status = 0;

    if (!handle || !headers) {
        curl_slist_free_all(headers);
        if (handle)
            handle_give(store, handle);
        attempt->code = error_set(attempt->err, HF_ENOMEM, "out of memory");
        return VERDICT_FINAL;
    }
    snprintf(url, sizeof url, "%s%s", attempt->at->url, attempt->path);
    curl_easy_setopt(handle->curl, CURLOPT_ERRORBUFFER, words);
    curl_easy_setopt(handle->curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(handle->curl, CURLOPT_POSTFIELDS, attempt->body);
    curl_easy_setopt(handle->curl, CURLOPT_POSTFIELDSIZE, (long)strlen(attempt->body));
    curl_easy_setopt(handle->curl, CURLOPT_TIMEOUT_MS, (long)attempt->limit_ms);
    curl_easy_setopt(handle->curl, CURLOPT_WRITEFUNCTION, collect);
    curl_easy_setopt(handle->curl, CURLOPT_WRITEDATA, &buffer);
    curl_easy_setopt(handle->curl, CURLOPT_NOPROGRESS, attempt->interrupted ? 0L : 1L);
    curl_easy_setopt(handle->curl, CURLOPT_XFERINFODATA, attempt->interrupted);
    handle->requests = 0;
    failed = curl_easy_setopt(handle->curl, CURLOPT_URL, url);
    if (failed == CURLE_OK)
        failed = curl_easy_perform(handle->curl);
    if (failed == CURLE_OK) {
        curl_easy_getinfo(handle->curl, CURLINFO_RESPONSE_CODE, &status);
        verdict = read_answer(attempt, status, &buffer);
    } else {
        verdict = read_failure(attempt, handle->curl, failed, words);
    }
    curl_easy_setopt(handle->curl, CURLOPT_ERRORBUFFER, NULL);
    curl_easy_setopt(handle->curl, CURLOPT_HTTPHEADER, NULL);
    curl_easy_setopt(handle->curl, CURLOPT_POSTFIELDS, NULL);
    curl_slist_free_all(headers);
    if (buffer.bytes)
        explicit_bzero(buffer.bytes, buffer.size); /* may be a token of the server's */
    free(buffer.bytes);
    handle_give(store, handle);
    return verdict;
}

/* ---- authentication -------------------------------------------------------------------------- */

static void write_credentials(struct engine_store *store, struct body *body)
{
    char password[PASSWORD_MAX + 1];
    json_t *words;
    char *text;

    memcpy(password, store->access.password, sizeof password);
    access_password(&store->access, password);
    words = json_pack("{s:s, s:s}", "name", store->access.user, "password", password);
    text = words ? json_dumps(words, 0) : NULL;
    explicit_bzero(password, sizeof password);
    body_add(body, "%s", text ? text : "{}");
    if (text)
        explicit_bzero(text, strlen(text));
    free(text);
    json_decref(words);
}

/* Leaves `token` alone if somebody else has got a new one meanwhile. */
static enum verdict authenticate(struct attempt *attempt, uint32_t tokens)
{
    struct engine_store *store = attempt->store;
    struct attempt asking = *attempt;
    struct body body = {0};
    enum verdict verdict;
    const char *token;

    write_credentials(store, &body);
    asking.path = "/v3/auth/authenticate";
    asking.nameless = true;
    asking.body = body.failed ? "{}" : body.bytes;
    verdict = try_once(&asking);
    if (body.bytes)
        explicit_bzero(body.bytes, body.size);
    body_free(&body);
    attempt->code = asking.code;
    if (verdict != VERDICT_FINAL || asking.code != HF_OK)
        return verdict == VERDICT_UNSURE ? VERDICT_ELSEWHERE
                                         : verdict; /* nothing of ours was done */
    token = json_string_value(json_object_get(asking.answer, "token"));
    pthread_mutex_lock(&store->mutex);
    if (token && strlen(token) <= ETCD_TOKEN_MAX && store->tokens == tokens) {
        memcpy(store->token, token, strlen(token) + 1);
        store->tokens++;
    }
    pthread_mutex_unlock(&store->mutex);
    json_decref(asking.answer);
    return VERDICT_FINAL;
}

static void warn_of_no_users(struct engine_store *store, const struct endpoint *at)
{
    char words[ADDRESS_TEXT_MAX + 200];

    if (atomic_exchange(&store->warned_of_no_users, true))
        return;
    snprintf(
        words, sizeof words,
        "%s does not ask who we are (its authentication is not enabled): the user and password "
        "are not used, and whoever reaches it may change its locks",
        at->address.shown);
    store->host->warn(store->host->context, words);
}

/* With a token, if there is a user: an old one, and if that has run out a new one. */
static enum verdict try_as_user(struct attempt *attempt)
{
    enum verdict verdict = VERDICT_TOKEN;
    uint32_t tokens;

    for (int i = 0; i < 2 && verdict == VERDICT_TOKEN; i++) {
        pthread_mutex_lock(&attempt->store->mutex);
        tokens = attempt->store->tokens;
        pthread_mutex_unlock(&attempt->store->mutex);
        if (attempt->store->access.user[0] && (tokens == 0 || i > 0)) {
            verdict = authenticate(attempt, tokens);
            /* A server that does not ask who we are takes us as we are. */
            if (verdict != VERDICT_FINAL || (attempt->code != HF_OK && attempt->code != HF_ENOTSUP))
                return verdict;
            if (attempt->code == HF_ENOTSUP)
                warn_of_no_users(attempt->store, attempt->at);
        }
        verdict = try_once(attempt);
    }
    if (verdict == VERDICT_TOKEN) {
        attempt->code = HF_EREFUSED;
        return VERDICT_FINAL;
    }
    return verdict;
}

/* ---- versions -------------------------------------------------------------------------------- */

/* The first answer of an endpoint: what is it? */
static void look_at_version(struct engine_store *store, struct endpoint *at)
{
    struct error_text ignored;
    struct attempt asking = {.store = store,
                             .at = at,
                             .path = "/v3/maintenance/status",
                             .body = "{}",
                             .limit_ms = VERSION_MS,
                             .err = &ignored};
    const char *version;
    char words[256], warning[1024];
    bool warn;

    if (atomic_exchange(&at->known, true) || try_once(&asking) != VERDICT_FINAL || !asking.answer)
        return;
    version = json_string_value(json_object_get(asking.answer, "version"));
    if (version && etcd_error_version(version, words, sizeof words)) {
        pthread_mutex_lock(&store->mutex);
        warn = !store->warned;
        store->warned = true;
        pthread_mutex_unlock(&store->mutex);
        snprintf(warning, sizeof warning, "%s is etcd %.32s: %s", at->address.shown, version,
                 words);
        if (warn)
            store->host->warn(store->host->context, warning);
    }
    json_decref(asking.answer);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void pause_until(int64_t until_ms, const _Atomic bool *interrupted)
{
    while (clock_boot_ms() < until_ms && !(interrupted && atomic_load(interrupted))) {
        struct timespec span = {0, 10000000};

        nanosleep(&span, NULL);
    }
}

/* It fails: the next one is asked from now on, and watches there begin again elsewhere. */
static void move_on(struct engine_store *store, int from)
{
    int next = (from + 1) % store->endpoint_count;

    if (store->endpoint_count > 1)
        atomic_compare_exchange_strong(&store->current, &from, next);
    atomic_fetch_add(&store->endpoints[from].failures, 1);
    listener_wake(store);
}

static int64_t limit_of(const struct engine_store *store, int64_t deadline_ms)
{
    int64_t left_ms = deadline_ms - clock_boot_ms(), limit_ms = left_ms;

    if (store->endpoint_count > 1)
        limit_ms = left_ms / 2;
    if (limit_ms < ATTEMPT_MIN_MS)
        limit_ms = ATTEMPT_MIN_MS < left_ms ? ATTEMPT_MIN_MS : left_ms;
    if (limit_ms > store->timeout_ms)
        limit_ms = store->timeout_ms;
    return limit_ms > 0 ? limit_ms : 1;
}

static int in_doubt(const struct question *question, bool unsure, const struct attempt *attempt)
{
    return attempt->err->text[0] && unsure && !question->reads ? HF_EUNKNOWN : HF_EUNREACH;
}

static int conclude(struct engine_store *store, const struct question *question, bool unsure,
                    struct attempt *attempt, json_t **ret_answer)
{
    if (attempt->code == HF_OK) {
        *ret_answer = attempt->answer;
        if (!atomic_load(&attempt->at->known))
            look_at_version(store, attempt->at);
        return HF_OK;
    }
    if (question->absent && strstr(attempt->err->text, question->absent)) {
        *ret_answer = NULL;
        return HF_OK;
    }
    /* Refused now, but an earlier one of the same may have been done. */
    return unsure && !question->reads ? HF_EUNKNOWN : attempt->code;
}

int gateway_ask(struct engine_store *store, const struct question *question, int64_t deadline_ms,
                json_t **ret_answer, struct error_text *err)
{
    struct error_text words = {""};
    struct attempt attempt = {.store = store,
                              .path = question->path,
                              .body = question->body,
                              .interrupted = question->interrupted,
                              .err = err ? err : &words};
    int64_t pause_ms = PAUSE_MS;
    bool unsure = false;

    attempt.err->text[0] = '\0';
    for (int tried = 0;;) {
        int current = atomic_load(&store->current);
        enum verdict verdict;

        if (clock_boot_ms() >= deadline_ms ||
            (question->interrupted && atomic_load(question->interrupted) && tried > 0)) {
            if (!attempt.err->text[0])
                error_write(attempt.err, "no time was left to ask etcd");
            return in_doubt(question, unsure, &attempt);
        }
        attempt.at = &store->endpoints[current];
        attempt.limit_ms = limit_of(store, deadline_ms);
        attempt.code = HF_OK;
        verdict = try_as_user(&attempt);
        if (verdict == VERDICT_FINAL)
            return conclude(store, question, unsure, &attempt, ret_answer);
        /* Before etcd has answered at all nothing was put, as that takes a lease that was acknowledged. */
        if (verdict == VERDICT_FOREIGN)
            verdict = atomic_load(&store->reached) ? VERDICT_UNSURE : VERDICT_ELSEWHERE;
        unsure = unsure || verdict == VERDICT_UNSURE;
        move_on(store, current);
        if (verdict == VERDICT_UNSURE && !question->repeatable)
            return in_doubt(question, unsure, &attempt);
        if (unsure && question->ret_again)
            *question->ret_again = true;
        if (++tried % store->endpoint_count != 0)
            continue;
        if (!atomic_load(&store->reached) && !unsure) /* nobody is there */
            return in_doubt(question, unsure, &attempt);
        store->host->trouble(store->host->context, attempt.err->text);
        pause_until(clock_after(clock_boot_ms(), pause_ms), question->interrupted);
        pause_ms = pause_ms * 2 < PAUSE_MS_MAX ? pause_ms * 2 : PAUSE_MS_MAX;
    }
}
