/* backup.c: a backup of what the leader has, piece by piece (src/server/backup.h). Asking again does no harm: a backup that nobody asks for any
 * more ends by itself. */
#include "engines/holdfast/store.h"

#include <string.h>

#define ID_DIGITS 16
#define PIECE_MS 10000 /* a disk that is busy may take its time for one */

/* ---- which one ----------------------------------------------------------------------------------- */

struct beginning {
    char id[ID_DIGITS + 1];
};

static void read_id(void *context, int index, const struct resp_node *value)
{
    struct beginning *beginning = context;

    (void)index;
    beginning->id[0] = '\0';
    if (value->type != RESP_BLOB || value->size != ID_DIGITS)
        return;
    memcpy(beginning->id, value->text, ID_DIGITS);
    beginning->id[ID_DIGITS] = '\0';
}

int holdfast_backup_begin(struct engine_store *store, char ret_id[17], int64_t deadline_ms,
                          struct error_text *err)
{
    struct beginning beginning = {.id = ""};
    struct call call = {.replies = 1,
                        .repeatable = true,
                        .reads = true,
                        .context = &beginning,
                        .on_reply = read_id};
    struct resp_writer writer = {0};
    int result;

    resp_write_array(&writer, 2);
    resp_write_text(&writer, "CLUSTER");
    resp_write_text(&writer, "BACKUP");
    result = pipeline_ask_written(store, &call, &writer, deadline_ms, err);
    if (result == HF_OK && !beginning.id[0])
        result = error_set(err, HF_EINTERNAL, "an invalid answer about a backup");
    if (result == HF_OK)
        memcpy(ret_id, beginning.id, sizeof beginning.id);
    return result;
}

/* ---- its pieces ---------------------------------------------------------------------------------- */

struct fetching {
    struct engine_piece *piece;
    uint64_t offset; /* that was asked for */
    int result;
};

/* From a server, which may say anything. */
static int take_piece(const struct fetching *fetching, const struct resp_node *value)
{
    const struct resp_node *bytes = map_value(value, "bytes");
    struct engine_piece *piece = fetching->piece;
    int64_t index = map_number(value, "index", -1), term = map_number(value, "term", -1);
    int64_t size = map_number(value, "size", -1), offset = map_number(value, "offset", -1);
    int64_t sum = map_number(value, "sum", -1);

    if (!bytes || bytes->type != RESP_BLOB || bytes->size > ENGINE_PIECE_MAX || index < 1 ||
        term < 1 || size < 1 || sum < 0 || sum > UINT32_MAX || offset < 0 ||
        (uint64_t)offset != fetching->offset || offset > size ||
        bytes->size > (uint64_t)(size - offset) || (bytes->size == 0) != (offset == size))
        return HF_EINTERNAL;
    map_text(value, "cluster", piece->cluster, sizeof piece->cluster);
    piece->index = (uint64_t)index;
    piece->term = (uint64_t)term;
    piece->size = (uint64_t)size;
    piece->offset = (uint64_t)offset;
    piece->sum = (uint32_t)sum;
    piece->count = bytes->size;
    if (bytes->size)
        memcpy(piece->bytes, bytes->text, bytes->size);
    return HF_OK;
}

static void read_piece(void *context, int index, const struct resp_node *value)
{
    struct fetching *fetching = context;

    (void)index;
    fetching->result = value->type == RESP_NIL ? HF_EBUSY : take_piece(fetching, value);
}

int holdfast_backup_piece(struct engine_store *store, const char *id, struct engine_piece *piece,
                          int64_t deadline_ms, struct error_text *err)
{
    struct fetching fetching = {.piece = piece, .offset = piece->offset, .result = HF_EINTERNAL};
    struct call call = {.replies = 1,
                        .repeatable = true,
                        .reads = true,
                        .slow = true,
                        .patience_ms = PIECE_MS,
                        .context = &fetching,
                        .on_reply = read_piece};
    struct resp_writer writer = {0};
    int result;

    resp_write_array(&writer, 4);
    resp_write_text(&writer, "CLUSTER");
    resp_write_text(&writer, "PIECE");
    resp_write_text(&writer, id);
    resp_write_number(&writer, (int64_t)fetching.offset);
    result = pipeline_ask_written(store, &call, &writer, deadline_ms, err);
    if (result != HF_OK)
        return result;
    if (fetching.result == HF_EINTERNAL)
        return error_set(err, HF_EINTERNAL, "an invalid piece of a backup");
    return fetching.result;
}
