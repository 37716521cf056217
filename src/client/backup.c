/* backup.c: hf_cluster_backup: a backup of the store, from its leader, while it serves. The bytes of the file are made here (base/backup_file.h): who
 * wants them only writes them down.
 *
 *     begin ──▶ pieces, one after the other ──▶ is it what the leader has read? ──▶ the end
 *       ▲            │
 *       └────────────┘ another node leads, or we were too slow: from the beginning */
#include "base/backup_file.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "client/client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BEGIN_MS 1500   /* for one answer; between two, who wants the backup may break it off */
#define PIECE_MS 1000   /* likewise */
#define NOT_READY_MS 50 /* between two looks */
#define BEGINS_MAX 8    /* from the beginning: whom so many leaders have left does it later */

struct fetch {
    hf_store *store;
    hf_backup_fn *fn;
    void *arg;
    int64_t wait_ms, until_ms; /* until then something has to come */
    char id[17];
    struct engine_piece first, piece; /* what it was at first, and the last one */
    hf_backup_info info;
    uint32_t snapshot_sum, file_sum;
    bool broken_off; /* by the caller */
    struct error_text *err;
};

static void came(struct fetch *fetch)
{
    fetch->until_ms = clock_after(clock_boot_ms(), fetch->wait_ms);
}

static int64_t ask_until(const struct fetch *fetch, int64_t most_ms)
{
    int64_t most = clock_after(clock_boot_ms(), most_ms);

    return most < fetch->until_ms ? most : fetch->until_ms;
}

/* What the caller does not want to go on with ends it, with its own code. */
static int give(struct fetch *fetch, const void *bytes, size_t size)
{
    int result = fetch->fn(fetch->arg, &fetch->info, bytes, size);

    if (result != HF_OK) {
        fetch->broken_off = true;
        return error_set(fetch->err, result < 0 ? result : HF_ECANCELED,
                         "whoever wanted the backup has broken it off");
    }
    if (size == 0)
        return HF_OK;
    fetch->file_sum = crc32c(fetch->file_sum, bytes, size);
    fetch->info.offset += size;
    return HF_OK;
}

static int pause_for(struct fetch *fetch, int64_t ms)
{
    struct timespec span = {ms / 1000, ms % 1000 * 1000000};

    while (nanosleep(&span, &span) < 0 && errno == EINTR)
        ;
    return give(fetch, NULL, 0);
}

/* ---- the file -------------------------------------------------------------------------------------- */

static bool read_cluster(const char *text, unsigned char ret_id[BACKUP_FILE_CLUSTER])
{
    static const char digits[] = "0123456789abcdef";

    if (strlen(text) != 2 * BACKUP_FILE_CLUSTER)
        return false;
    for (size_t i = 0; i < BACKUP_FILE_CLUSTER; i++) {
        const char *high = strchr(digits, text[2 * i]), *low = strchr(digits, text[2 * i + 1]);

        if (!high || !low)
            return false;
        ret_id[i] = (unsigned char)((high - digits) << 4 | (low - digits));
    }
    return true;
}

/* The first piece says what the file is of. */
static int begin_file(struct fetch *fetch)
{
    struct engine_piece *piece = &fetch->piece;
    struct backup_file about = {.index = piece->index,
                                .term = piece->term,
                                .made_s = (int64_t)time(NULL),
                                .size = piece->size};
    unsigned char head[BACKUP_FILE_HEAD];

    if (!read_cluster(piece->cluster, about.cluster) || about.size > BACKUP_FILE_SNAPSHOT_MAX)
        return error_set(fetch->err, HF_EINTERNAL, "an invalid piece of a backup");
    fetch->first = *piece;
    fetch->info = (hf_backup_info){.size = sizeof fetch->info,
                                   .total = BACKUP_FILE_HEAD + about.size + BACKUP_FILE_END,
                                   .index = about.index,
                                   .term = about.term,
                                   .cluster = fetch->first.cluster};
    fetch->snapshot_sum = fetch->file_sum = 0;
    backup_file_write_head(&about, head);
    return give(fetch, head, sizeof head);
}

static int end_file(struct fetch *fetch)
{
    unsigned char end[BACKUP_FILE_END];

    if (fetch->snapshot_sum != fetch->first.sum)
        return error_set(fetch->err, HF_EIO,
                         "the backup came here damaged, and is of no use: take another");
    backup_file_write_end(fetch->file_sum, end);
    return give(fetch, end, sizeof end);
}

/* ---- its pieces ------------------------------------------------------------------------------------ */

static bool is_of_the_same(const struct engine_piece *one, const struct engine_piece *other)
{
    return strcmp(one->cluster, other->cluster) == 0 && one->index == other->index &&
           one->term == other->term && one->size == other->size && one->sum == other->sum;
}

static int take(struct fetch *fetch)
{
    struct engine_piece *piece = &fetch->piece;
    int result = piece->offset == 0 ? begin_file(fetch) : HF_OK;

    if (result != HF_OK)
        return result;
    if (!is_of_the_same(piece, &fetch->first))
        return error_set(fetch->err, HF_EINTERNAL, "pieces of two backups under one number");
    if (piece->count == 0)
        return HF_OK;
    fetch->snapshot_sum = crc32c(fetch->snapshot_sum, piece->bytes, piece->count);
    piece->offset += piece->count;
    return give(fetch, piece->bytes, piece->count);
}

static bool is_whole(const struct fetch *fetch)
{
    return fetch->piece.count == 0 && fetch->piece.offset == fetch->first.size;
}

/* HF_ELOST: it has to begin anew. */
static int fetch_pieces(struct fetch *fetch)
{
    const struct engine *engine = fetch->store->engine;
    int result = HF_OK;

    fetch->piece.offset = 0;
    fetch->first.size = 0;
    do {
        result = engine->backup_piece(fetch->store->engine_store, fetch->id, &fetch->piece,
                                      ask_until(fetch, PIECE_MS), fetch->err);
        if (result == HF_OK || result == HF_EBUSY)
            came(fetch);
        if (result == HF_OK)
            result = take(fetch);
        else if (result == HF_EBUSY || (is_transient(result) && clock_boot_ms() < fetch->until_ms))
            result = pause_for(fetch, NOT_READY_MS);
    } while (result == HF_OK && (fetch->first.size == 0 || !is_whole(fetch)));
    return result == HF_OK ? end_file(fetch) : result;
}

static int begin(struct fetch *fetch)
{
    const struct engine *engine = fetch->store->engine;
    int result;

    do {
        result = engine->backup_begin(fetch->store->engine_store, fetch->id,
                                      ask_until(fetch, BEGIN_MS), fetch->err);
        if (!is_transient(result) || clock_boot_ms() >= fetch->until_ms)
            return result;
        failure_keep(result, fetch->err); /* for who asks why nothing comes */
        result = pause_for(fetch, NOT_READY_MS);
    } while (result == HF_OK);
    return result;
}

static int fetch_backup(struct fetch *fetch)
{
    int result = HF_ELOST;

    for (int i = 0; i < BEGINS_MAX && result == HF_ELOST && !fetch->broken_off; i++) {
        came(fetch);
        result = begin(fetch);
        if (result == HF_OK)
            result = fetch_pieces(fetch);
    }
    if (result == HF_ELOST && !fetch->broken_off)
        return error_set(fetch->err, HF_EUNREACH,
                         "the backup was begun %d times, and another node led before its end, or "
                         "it was fetched too slowly",
                         BEGINS_MAX);
    return result;
}

int hf_cluster_backup(hf_store *store, hf_backup_fn *fn, void *arg, int64_t wait_ms)
{
    struct error_text err = {""};
    struct fetch fetch = {.store = store,
                          .fn = fn,
                          .arg = arg,
                          .wait_ms = wait_ms,
                          .info = {.size = sizeof(hf_backup_info), .cluster = ""},
                          .err = &err};
    int result = cluster_check(store, wait_ms, &err);

    if (result == HF_OK && !fn)
        result = error_set(&err, HF_EINVAL, "nowhere to put the backup");
    if (result == HF_OK && (!store->engine->backup_begin || !store->engine->backup_piece))
        result = error_set(&err, HF_ENOTSUP, "this store has no backups");
    if (result == HF_OK) {
        fetch.piece.bytes = malloc(ENGINE_PIECE_MAX);
        result =
            fetch.piece.bytes ? fetch_backup(&fetch) : error_set(&err, HF_ENOMEM, "out of memory");
        free(fetch.piece.bytes);
    }
    return failure_keep(result, &err);
}
