/* audit.c: see audit.h. */
#include "server/audit.h"
#include "base/clock.h"
#include "base/random.h"
#include "server/audit_budget.h"
#include "server/connection.h"
#include "server/log.h"
#include "server/origin.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MODE 0640

_Static_assert(AUDIT_COMMAND_MAX <= LOG_EVENT_VALUE_MAX,
               "what is shown of a command is not cut in its line");

static int audit_fd = -1;
static bool is_torn; /* a line is there in part: the next one does not go on with it */

/* Of strangers, and of users: who guesses passwords does not hide what a user was denied. What operators do has no budget: it is written, or
 * not done. */
enum kind { LOGIN_REFUSED, DENIED };
static struct {
    const char *event;
    struct audit_budget budget;
} refusals[] = {[LOGIN_REFUSED] = {.event = "login_refused"}, [DENIED] = {.event = "denied"}};
#define KINDS (sizeof refusals / sizeof *refusals)
static uint64_t left_out; /* since the start */

/* The disk was full, or the machine stopped. What may not be read is taken for whole. */
static bool ends_in_a_line(const char *path, off_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    char last = '\n';

    if (fd < 0)
        return true;
    if (size > 0 && pread(fd, &last, 1, size - 1) != 1)
        last = '\n';
    close(fd);
    return last == '\n';
}

int audit_open(const char *path, struct error_text *err)
{
    struct stat status;
    int fd;

    if (!path[0])
        return HF_OK;
    /* O_NONBLOCK: a FIFO must be refused, not waited for. */
    fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, FILE_MODE);
    if (fd < 0)
        return error_set_errno(err, HF_EREFUSED, errno, "audit-file %s", path);
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        close(fd);
        return error_set(err, HF_EREFUSED, "audit-file %s is not a regular file", path);
    }
    audit_close(); /* what was left out so far is told in the file in which it is missing */
    audit_fd = fd;
    is_torn = !ends_in_a_line(path, status.st_size);
    return HF_OK;
}

/* False: it did not go out, for the reason in errno. */
static bool write_event(const char *event, const struct log_field *fields, size_t count)
{
    if (audit_fd < 0)
        return true;
    if (is_torn && write(audit_fd, "\n", 1) != 1)
        return false;
    errno = 0;
    is_torn = false;
    if (log_event(audit_fd, event, fields, count))
        return true;
    is_torn = errno == 0;
    if (is_torn)
        errno = ENOSPC;
    return false;
}

static void note(const char *event, const char *user, const struct log_field *fields, size_t count)
{
    if (!write_event(event, fields, count))
        log_limited(LOG_LEVEL_ERROR, 3, "the audit file could not be written",
                    log_text("event", event), log_text("user", user),
                    log_text("why", strerror(errno)));
}

/* ---- what others than operators cause ---------------------------------------------------------------- */

static bool may_note(enum kind kind, const char *client)
{
    if (audit_fd < 0)
        return false;
    if (audit_budget_take(&refusals[kind].budget, origin_of(client), clock_boot_ms()))
        return true;
    left_out++;
    return false;
}

static void note_left_out(bool at_once)
{
    for (size_t i = 0; audit_fd >= 0 && i < KINDS; i++) {
        uint64_t count = audit_budget_left_out(&refusals[i].budget, clock_boot_ms(), at_once);
        const struct log_field fields[] = {log_text("of", refusals[i].event),
                                           log_number("count", (int64_t)count)};

        if (count > 0)
            note("left_out", "", fields, 2);
    }
}

void audit_second(void)
{
    note_left_out(false);
}

uint64_t audit_left_out(void)
{
    return left_out;
}

void audit_close(void)
{
    if (audit_fd < 0)
        return;
    note_left_out(true);
    close(audit_fd);
    audit_fd = -1;
}

static const char *client_of(const struct session *session)
{
    return LIST_ENTRY(session, struct connection, session)->address;
}

void audit_http_login(const char *client, const char *user, bool right)
{
    const struct log_field fields[] = {log_text("user", user), log_text("client", client)};

    if (right || may_note(LOGIN_REFUSED, client))
        note(right ? "login" : "login_refused", user, fields, 2);
}

void audit_login(const struct session *session, const char *user, bool right)
{
    audit_http_login(client_of(session), user, right);
}

static const char *copy_name(const struct denied *denied, char ret_name[AUDIT_NAME_MAX])
{
    snprintf(ret_name, AUDIT_NAME_MAX, "%.*s", (int)denied->name.size,
             denied->name.bytes ? denied->name.bytes : "");
    return ret_name;
}

void audit_denied(struct session *session, const struct denied *denied)
{
    const char *user = session->user->name;
    char name[AUDIT_NAME_MAX];
    const struct log_field why =
        denied->quota ? log_text("quota", denied->quota) : log_text("right", denied->right);
    const struct log_field fields[] = {
        log_text("user", user), log_text("client", client_of(session)),
        log_text("command", denied->command), why, log_text("name", copy_name(denied, name))};

    if (denied->quota)
        log_limited(LOG_LEVEL_WARNING, 10, "refused a client: its user has as much as it may",
                    log_text("user", user), log_text("command", denied->command), why);
    else
        log_limited(LOG_LEVEL_WARNING, 10, "refused a client: its user has not the right",
                    log_text("user", user), log_text("command", denied->command), why);
    if (may_note(DENIED, client_of(session)))
        note(denied->quota ? "over_quota" : "denied", user, fields, denied->name.bytes ? 5 : 4);
}

/* ---- commands of operators ------------------------------------------------------------------------ */

/* What is said of one at its end: its user and its connection may be gone by then. */
struct operation {
    char id[32];
    char user[USER_NAME_MAX + 1];
    char client[ENDPOINT_TEXT_MAX];
    char command[AUDIT_COMMAND_MAX + 1];
};

struct words_out {
    char *text;
    size_t used;
};

static void put(struct words_out *out, char byte)
{
    if (out->used < AUDIT_COMMAND_MAX)
        out->text[out->used++] = byte;
}

/* In quotes if it could be taken for two words, or for none. */
static void put_word(struct words_out *out, const char *word, size_t size)
{
    bool quoted = size == 0;

    for (size_t i = 0; i < size; i++)
        quoted |= word[i] == ' ' || word[i] == '"' || word[i] == '\\';
    if (quoted)
        put(out, '"');
    for (size_t i = 0; i < size; i++) {
        if (word[i] == '"' || word[i] == '\\')
            put(out, '\\');
        put(out, word[i] ? word[i] : '?');
    }
    if (quoted)
        put(out, '"');
}

static void show_command(const struct command *whole, const struct resp_node *value,
                         char ret_text[AUDIT_COMMAND_MAX + 1])
{
    struct words_out out = {.text = ret_text};

    put_word(&out, whole->name, strlen(whole->name));
    for (uint32_t i = 1; i < value->count; i++) {
        put(&out, ' ');
        put_word(&out, word_at(value, i)->text, word_at(value, i)->size);
    }
    ret_text[out.used] = '\0';
}

/* Other than those of this server's life before, whose lines are in the same file. */
static void next_id(char *ret_id, size_t size)
{
    static uint32_t life;
    static uint64_t count;

    if (count++ == 0)
        random_fill(&life, sizeof life);
    snprintf(ret_id, size, "%08" PRIx32 "-%" PRIu64, life, count);
}

static bool write_begin(const struct operation *operation)
{
    const struct log_field fields[] = {
        log_text("id", operation->id), log_text("user", operation->user),
        log_text("client", operation->client), log_text("command", operation->command)};

    return write_event("command", fields, 4);
}

bool audit_begin(struct session *session, const struct command *whole,
                 const struct resp_node *value, void **ret_operation)
{
    struct operation *operation;

    if (audit_fd < 0)
        return true;
    operation = calloc(1, sizeof *operation);
    if (!operation) {
        refuse(session, "NOAUDIT there is no memory to write this down, so it is not done");
        return false;
    }
    next_id(operation->id, sizeof operation->id);
    snprintf(operation->user, sizeof operation->user, "%s", session->user->name);
    snprintf(operation->client, sizeof operation->client, "%s", client_of(session));
    show_command(whole, value, operation->command);
    if (!write_begin(operation)) {
        const char *why = strerror(errno);

        log_limited(LOG_LEVEL_ERROR, 3,
                    "an operator's command is refused: the audit file could not be written",
                    log_text("user", operation->user), log_text("command", operation->command),
                    log_text("why", why));
        refuse(session,
               "NOAUDIT the audit file of this server cannot be written (%s), so this is not done: "
               "make room for it there",
               why);
        free(operation);
        return false;
    }
    *ret_operation = operation;
    return true;
}

void audit_end(struct session *session, void *about, const char *refusal)
{
    struct operation *operation = about;
    size_t size = refusal ? strcspn(refusal, " ") : 0;
    const char *outcome = !refusal                                             ? "done"
                          : size == 7 && memcmp(refusal, "UNKNOWN", size) == 0 ? "unknown"
                                                                               : "refused";
    const struct log_field fields[] = {
        log_text("id", operation->id),         log_text("user", operation->user),
        log_text("client", operation->client), log_text("outcome", outcome),
        log_bytes("code", refusal, size),      log_text("command", operation->command)};
    struct log_field done[5];

    (void)session;
    memcpy(done, fields, 4 * sizeof *fields);
    done[4] = fields[5];
    note("command_end", operation->user, refusal ? fields : done, refusal ? 6 : 5);
    free(operation);
}
