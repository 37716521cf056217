/* request.c: a command goes into the log, and is under way until its answer is written. */
#include "session/inside.h"

#include <stdlib.h>
#include <string.h>

#define SPARE_MAX 4096u /* requests that are kept for the next ones */
/* Rows of answers under way, beyond which no further long one begins. All of them may be made in one round of the loop, and other nodes and clients
 * wait meanwhile: with one that goes beyond it these are some ten thousand rows, and some tens of milliseconds. */
#define ROWS_READING_MAX 2000u

static struct request *request_new(struct session *session)
{
    struct sessions *sessions = session->sessions;
    struct request *request;

    if (!list_empty(&sessions->spare)) {
        request = LIST_ENTRY(sessions->spare.next, struct request, node);
        list_remove(&request->node);
        sessions->spare_count--;
        memset(request, 0, sizeof *request);
    } else {
        request = calloc(1, sizeof *request);
        INVARIANT(request != NULL);
    }
    list_init(&request->node);
    request->session = session;
    request->began_us = sessions->now_us;
    session->references++;
    return request;
}

void request_free(struct sessions *sessions, struct request *request)
{
    session_unref(request->session);
    free(request->words);
    request->words = NULL;
    sessions->rows_reading -= request->rows;
    request->rows = 0;
    if (sessions->spare_count >= SPARE_MAX) {
        free(request);
        return;
    }
    list_append(&sessions->spare, &request->node);
    sessions->spare_count++;
}

void requests_free_spare(struct sessions *sessions)
{
    LIST_EACH_SAFE(node, &sessions->spare)
    free(LIST_ENTRY(node, struct request, node));
    list_init(&sessions->spare);
    sessions->spare_count = 0;
}

struct session *sessions_asker(const void *about)
{
    const struct request *request = about;

    return request->session;
}

/* ---- those of operators -------------------------------------------------------------------------- */

static void take_operation(struct request *request, struct session *session)
{
    request->operation = session->operation;
    session->operation = NULL;
}

/* It did not begin after all. */
static void give_operation_back(const struct request *request, struct session *session)
{
    session->operation = request->operation;
}

void operation_over(struct session *session, const char *refusal)
{
    void *operation = session->operation;

    session->operation = NULL;
    if (operation)
        session->sessions->host->operated(session, operation, refusal);
}

/* ---- those that are not for the log ------------------------------------------------------------ */

struct request *request_begin(struct session *session)
{
    struct request *request = request_new(session);

    request->waits = session->exclusive = true;
    take_operation(request, session);
    session->under_way++;
    return request;
}

void request_forget(struct request *request)
{
    request->session->under_way--;
    request->session->exclusive = false;
    give_operation_back(request, request->session);
    request_free(request->session->sessions, request);
}

/* ---- into the log ------------------------------------------------------------------------------ */

static struct words *copy_words(const struct resp_node *value, uint32_t from, uint32_t count)
{
    size_t size = sizeof(struct words) + count * sizeof(struct core_text);
    struct words *words;
    char *at;

    for (uint32_t i = 0; i < count; i++)
        size += value[1 + from + i].size + 1;
    words = malloc(size);
    INVARIANT(words != NULL);
    words->count = count;
    at = (char *)&words->word[count];
    for (uint32_t i = 0; i < count; i++) {
        const struct resp_node *word = &value[1 + from + i];

        memcpy(at, word->text, word->size);
        at[word->size] = '\0';
        words->word[i] = (struct core_text){at, word->size};
        at += word->size + 1;
    }
    return words;
}

bool session_may_read(struct session *session)
{
    struct sessions *sessions = session->sessions;

    if (sessions->rows_reading < ROWS_READING_MAX &&
        (session->waits_to_read || sessions->waiting_to_read == 0)) {
        session_reads_not(session);
        return true;
    }
    sessions->waiting_to_read += !session->waits_to_read;
    session->waits_to_read = true;
    return false;
}

void session_reads_not(struct session *session)
{
    session->sessions->waiting_to_read -= session->waits_to_read;
    session->waits_to_read = false;
}

enum verdict submit(struct session *session, const struct submission *submission)
{
    struct sessions *sessions = session->sessions;
    struct request *request = request_new(session);
    const struct core_command *command = &submission->command;
    char text[ERROR_TEXT_MAX];
    int result;

    request->push = submission->push;
    request->waits = submission->waits;
    request->once = command->flags & CORE_ONCE;
    request->read = submission->read;
    request->parts = request->total = command->lease_count;
    if (submission->words)
        request->words = copy_words(submission->value, submission->from, submission->words);
    take_operation(request, session);
    result = sessions->host->submit(sessions->context, command, request);
    if (result == HF_OK) {
        session->under_way++;
        session->exclusive = submission->waits;
        request->rows = submission->rows;
        sessions->rows_reading += submission->rows;
        return VERDICT_DONE;
    }
    give_operation_back(request, session);
    request_free(sessions, request);
    if (result == HF_EBUSY)
        return VERDICT_FULL;
    if (result == HF_EINVAL)
        return refuse(session, "ERR this is beyond the limits of the lock table");
    return refuse(session, "%s", sessions_not_leading(sessions, text, sizeof text));
}

/* ---- its answer -------------------------------------------------------------------------------- */

void request_over(struct request *request, const char *refusal)
{
    struct session *session = request->session;
    bool waited = request->waits;

    if (request->operation)
        session->sessions->host->operated(session, request->operation, refusal);
    session->under_way--;
    if (waited)
        session->exclusive = false;
    session->sessions->host->answered(session, waited);
    request_free(session->sessions, request);
}

void request_finish(struct request *request)
{
    request_over(request, NULL);
}

void request_fail(struct request *request, const char *text)
{
    request->session->protocol->fail(request->session, text);
    request_over(request, text);
}

void request_refuse(struct request *request)
{
    request->session->sessions->wrong_commands++;
    request_fail(request, request->session->sessions->refusal.text);
}
