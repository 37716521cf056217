/* backup.c: see backup.h. */
#include "server/backup.h"
#include "base/random.h"
#include "base/switches.h"
#include "base/text.h"
#include "server/cluster_commands.h"
#include "server/connection.h"
#include "server/log.h"
#include "server/server.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ID_DIGITS 16
#define NO_BACKUP                                                                             \
    "NOBACKUP there is no such backup here: it was not asked for within 30 s, made room for " \
    "another when its client had gone, or another node leads since; begin anew"

_Static_assert(BACKUP_IDLE_MS == 30000, "the words above say so");

/* ---- which there are ------------------------------------------------------------------------------ */

static int64_t now_ms(const struct server *server)
{
    return (int64_t)uv_now(server->loop);
}

static struct backup *find(struct server *server, uint64_t id)
{
    for (unsigned i = 0; i < BACKUPS_MAX; i++)
        if (server->backups.at[i].id == id)
            return &server->backups.at[i];
    return NULL;
}

static void end(struct backup *backup)
{
    if (backup->taking)
        node_backup_end(backup->taking);
    *backup = (struct backup){.id = 0};
}

static bool is_connected(struct server *server, uint64_t id)
{
    LIST_EACH(node, &server->sessions.all)
    {
        if (LIST_ENTRY(node, struct connection, session.node)->id == id)
            return true;
    }
    return false;
}

/* An unused one, or else that of a client that has hung up: it has BACKUP_IDLE_MS to come back for it, but keeps nobody out. */
static struct backup *find_room(struct server *server)
{
    struct backup *oldest = NULL;

    for (unsigned i = 0; i < BACKUPS_MAX; i++) {
        struct backup *backup = &server->backups.at[i];

        if (backup->id == 0)
            return backup;
        if (!backup->request && !is_connected(server, backup->connection) &&
            (!oldest || backup->used_ms < oldest->used_ms))
            oldest = backup;
    }
    if (!oldest)
        return NULL;
    end(oldest);
    log_info("a backup was given up for another one: its client has gone");
    return oldest;
}

void backups_drop(struct server *server)
{
    for (unsigned i = 0; i < BACKUPS_MAX; i++) {
        struct backup *backup = &server->backups.at[i];
        struct request *request = backup->request;

        if (backup->id == 0 || SWITCHED(SWITCH_BACKUP_STAYS))
            continue;
        end(backup);
        if (request)
            request_fail(request, NO_BACKUP);
        log_info("a backup was given up: this node does not lead any more, or stops");
    }
}

void backups_second(struct server *server)
{
    for (unsigned i = 0; i < BACKUPS_MAX; i++) {
        struct backup *backup = &server->backups.at[i];

        if (backup->id == 0 || backup->request ||
            now_ms(server) - backup->used_ms < (int64_t)BACKUP_IDLE_MS)
            continue;
        end(backup);
        log_info("a backup was given up: nobody has asked for more of it",
                 log_number("ms", BACKUP_IDLE_MS));
    }
}

/* ---- what the node says --------------------------------------------------------------------------- */

static void on_ready(void *context, const struct node_backup_about *about,
                     const struct error_text *err)
{
    struct backup *backup = context;

    if (about) {
        backup->about = *about;
        backup->state = BACKUP_READY;
        return;
    }
    backup->why = *err;
    backup->state = BACKUP_FAILED;
    node_backup_end(backup->taking);
    backup->taking = NULL;
    log_warning("a backup cannot be taken", log_text("why", backup->why.text));
}

static void write_number(struct resp_writer *out, const char *field, uint64_t number)
{
    resp_write_text(out, field);
    resp_write_integer(out, (int64_t)number);
}

/* Each says what it is a piece of, so that nobody can put two backups together. */
static void write_piece(struct session *session, const struct backup *backup, uint64_t offset,
                        const void *bytes, size_t size)
{
    struct resp_writer *out = &session->out;

    resp_write_map(out, 7, session->resp3);
    resp_write_text(out, "cluster");
    resp_write_text(out, node_cluster(backup->server->node));
    write_number(out, "index", backup->about.index);
    write_number(out, "term", backup->about.term);
    write_number(out, "size", backup->about.size);
    write_number(out, "sum", backup->about.sum);
    write_number(out, "offset", offset);
    resp_write_text(out, "bytes");
    resp_write_blob(out, bytes, size);
}

static void on_piece(void *context, const void *bytes, size_t size, const struct error_text *err)
{
    struct backup *backup = context;
    struct request *request = backup->request;
    char text[ERROR_TEXT_MAX];

    backup->request = NULL;
    backup->used_ms = now_ms(backup->server);
    if (bytes) {
        write_piece(request->session, backup, backup->offset, bytes, size);
        request_finish(request);
        return;
    }
    snprintf(text, sizeof text, "ERR the backup cannot be read: %.*s", ERROR_TEXT_MAX - 64,
             err->text);
    end(backup);
    request_fail(request, text);
}

/* ---- CLUSTER BACKUP ------------------------------------------------------------------------------- */

/* Its place in the log is reached: this node led until now, and has applied all that was acknowledged before. From within the
 * replica, which is not to be asked for anything now. */
static void begin(struct session *session, const struct words *words)
{
    struct server *server = server_of(session);
    struct backup *backup = find_room(server);
    char text[ID_DIGITS + 1];

    (void)words;
    if (!backup) {
        resp_write_error(&session->out, "TRYAGAIN too many backups are being taken");
        return;
    }
    *backup = (struct backup){.server = server,
                              .state = BACKUP_WANTED,
                              .used_ms = now_ms(server),
                              .connection = connection_of(session)->id};
    while (backup->id == 0)
        random_fill(&backup->id, sizeof backup->id);
    snprintf(text, sizeof text, "%016" PRIx64, backup->id);
    resp_write_text(&session->out, text);
}

enum verdict command_cluster_backup(struct session *session, const struct resp_node *value)
{
    struct server *server = server_of(session);
    const struct core_command place = {.op = CORE_READ};
    struct error_text err = {""};
    struct request *request;
    char text[ERROR_TEXT_MAX];
    int result;

    (void)value;
    if (!find_room(server))
        return refuse(session,
                      "TRYAGAIN %u backups are being taken, and no more at a time: ask again when "
                      "one is over",
                      BACKUPS_MAX);
    if (SWITCHED(SWITCH_BACKUP_UNCONFIRMED)) {
        begin(session, NULL);
        return VERDICT_DONE;
    }
    request = request_begin(session);
    request->read = begin;
    result = node_submit(server->node, &place, request);
    if (result == HF_OK)
        return VERDICT_DONE;
    request_forget(request);
    if (result == HF_EBUSY)
        return VERDICT_FULL;
    cluster_refusal(server, result, &err, text);
    return refuse(session, "%s", text);
}

bool backups_wanted(const struct server *server)
{
    for (unsigned i = 0; i < BACKUPS_MAX; i++)
        if (server->backups.at[i].id != 0 && server->backups.at[i].state == BACKUP_WANTED)
            return true;
    return false;
}

void backups_go_on(struct server *server)
{
    for (unsigned i = 0; i < BACKUPS_MAX; i++) {
        struct backup *backup = &server->backups.at[i];
        const struct node_backup_host host = {
            .context = backup, .ready = on_ready, .piece = on_piece};

        if (backup->id == 0 || backup->state != BACKUP_WANTED)
            continue;
        backup->taking = node_backup_begin(server->node, &host);
        backup->state = BACKUP_TAKEN;
        log_info("a backup is being taken");
    }
}

/* ---- CLUSTER PIECE -------------------------------------------------------------------------------- */

static bool parse_id(const struct resp_node *word, uint64_t *ret_id)
{
    uint64_t id = 0;

    if (word->size != ID_DIGITS)
        return false;
    for (size_t i = 0; i < ID_DIGITS; i++) {
        const char *digit = memchr("0123456789abcdef", word->text[i], 16);

        if (!digit)
            return false;
        id = id << 4 | (uint64_t)(digit - "0123456789abcdef");
    }
    *ret_id = id;
    return id != 0;
}

/* One piece in a client's output, and room beside it for what else it is sent. */
static size_t piece_max(const struct server *server)
{
    size_t half = server->config->max_output_bytes / 2;

    return half < NODE_BACKUP_PIECE ? half : NODE_BACKUP_PIECE;
}

static enum verdict refuse_failed(struct session *session, struct backup *backup)
{
    struct error_text why = backup->why;

    end(backup);
    return refuse(session, "ERR no backup can be taken: %s", why.text);
}

static void read_piece(struct session *session, struct backup *backup, uint64_t offset)
{
    uint64_t left = backup->about.size - offset;
    size_t most = piece_max(backup->server);

    backup->request = request_begin(session);
    backup->offset = offset;
    node_backup_read(backup->taking, offset, left < most ? (size_t)left : most);
}

enum verdict command_cluster_piece(struct session *session, const struct resp_node *value)
{
    struct backup *backup = NULL;
    uint64_t id, offset;

    if (!parse_number(session, word_at(value, 3), "an offset", 0, INT64_MAX, &offset))
        return VERDICT_REFUSED;
    if (parse_id(word_at(value, 2), &id))
        backup = find(server_of(session), id);
    if (!backup)
        return refuse(session, NO_BACKUP);
    backup->used_ms = now_ms(backup->server);
    backup->connection = connection_of(session)->id;
    if (backup->state == BACKUP_FAILED)
        return refuse_failed(session, backup);
    if (backup->state != BACKUP_READY || backup->request) { /* the client asks again */
        resp_write_nil(&session->out, session->resp3);
        return VERDICT_DONE;
    }
    if (offset > backup->about.size)
        return refuse(session, "ERR this backup has %" PRIu64 " bytes", backup->about.size);
    if (offset < backup->about.size) {
        read_piece(session, backup, offset);
        return VERDICT_DONE;
    }
    write_piece(session, backup, offset, "", 0); /* it has all of them */
    log_info("a backup was fetched", log_number("index", (int64_t)backup->about.index),
             log_number("bytes", (int64_t)backup->about.size));
    end(backup);
    return VERDICT_DONE;
}
