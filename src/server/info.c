/* info.c: INFO: what an operator or a client asks about the server itself. The numbers are metrics.c's. */
#include "server/info.h"
#include "server/metrics.h"
#include "server/server.h"

static bool is_wanted(void *context, const char *section)
{
    const struct resp_node *value = context;

    if (value->count == 1)
        return true;
    for (uint32_t i = 1; i < value->count; i++) {
        const struct resp_node *word = word_at(value, i);

        if (word_is(word, section) || word_is(word, "all") || word_is(word, "everything") ||
            word_is(word, "default"))
            return true;
    }
    return false;
}

/* INFO prometheus: what /metrics says, for those who cannot ask by HTTP. */
enum verdict command_info(struct session *session, const struct resp_node *value)
{
    struct textbuf text = {NULL};

    if (value->count == 2 && word_is(word_at(value, 1), "prometheus"))
        metrics_expose(server_of(session), session->user, &text);
    else
        metrics_info(server_of(session), is_wanted, (void *)(uintptr_t)value, &text);
    if (text.failed)
        session->out.failed = true;
    else
        resp_write_blob(&session->out, text.bytes ? text.bytes : "", text.size);
    textbuf_free(&text);
    return VERDICT_DONE;
}
