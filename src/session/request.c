/* request.c: a command goes into the log, and is under way until its answer is written. */
#include "session/inside.h"

#include <stdlib.h>
#include <string.h>

#define SPARE_MAX 4096u /* requests that are kept for the next ones */

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
    session->references++;
    return request;
}

void request_free(struct sessions *sessions, struct request *request)
{
    session_unref(request->session);
    free(request->words);
    request->words = NULL;
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

/* ---- those that are not for the log ------------------------------------------------------------ */

struct request *request_begin(struct session *session)
{
    struct request *request = request_new(session);

    request->waits = session->waits = true;
    session->under_way++;
    return request;
}

void request_forget(struct request *request)
{
    request->session->under_way--;
    request->session->waits = false;
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
    result = sessions->host->submit(sessions->context, command, request);
    if (result == HF_OK) {
        session->under_way++;
        session->waits = submission->waits;
        return VERDICT_DONE;
    }
    request_free(sessions, request);
    if (result == HF_EBUSY)
        return VERDICT_FULL;
    if (result == HF_EINVAL)
        return refuse(session, "ERR this is beyond the limits of the lock table");
    return refuse(session, "%s", sessions_not_leading(sessions, text, sizeof text));
}

/* ---- its answer -------------------------------------------------------------------------------- */

void request_finish(struct request *request)
{
    struct session *session = request->session;
    bool waited = request->waits;

    session->under_way--;
    if (waited)
        session->waits = false;
    session->sessions->host->answered(session, waited);
    request_free(session->sessions, request);
}

void request_fail(struct request *request, const char *text)
{
    resp_write_error(&request->session->out, text);
    request_finish(request);
}
