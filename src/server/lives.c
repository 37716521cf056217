#include "server/lives.h"
#include "base/text.h"
#include "replica/storage.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FILE_NAME "lives"
#define ID_MAX 20 /* digits */

/* One to a line: "2 91f0c4a7e2d35b68". */
static int store(const struct lives *lives, const struct storage *storage, struct error_text *err)
{
    char text[STORAGE_NOTE_MAX + 1] = "";
    size_t used = 0;

    for (unsigned i = 0; i < lives->count; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%" PRIu64 " %s\n",
                                 lives->at[i].id, lives->at[i].text);
    return storage_write_note(storage, FILE_NAME, text, err);
}

int lives_load(struct lives *lives, const struct storage *storage, struct error_text *err)
{
    char text[STORAGE_NOTE_MAX + 1], id[ID_MAX + 1];
    const char *at = text;
    int result = storage_read_note(storage, FILE_NAME, text, err), size = 0;

    lives->count = 0;
    if (result != HF_OK)
        return result;
    while (*at) {
        struct life *life = &lives->at[lives->count];

        if (lives->count == LIVES_MAX ||
            sscanf(at, "%20[0-9] %32[!-~]%n", id, life->text, &size) != 2 ||
            !text_to_u64(id, UINT64_MAX, &life->id) || at[size] != '\n')
            return error_set(err, HF_EIO,
                             "the file '" FILE_NAME "' in the data directory is damaged: restore "
                             "it, or the directory, from a backup");
        at += size + 1;
        lives->count++;
    }
    return HF_OK;
}

static struct life *find(const struct lives *lives, uint64_t id)
{
    for (unsigned i = 0; i < lives->count; i++)
        if (lives->at[i].id == id)
            return (struct life *)&lives->at[i];
    return NULL;
}

struct core_text lives_find(const struct lives *lives, uint64_t id)
{
    const struct life *life = find(lives, id);

    return life ? (struct core_text){life->text, strlen(life->text)} : (struct core_text){"", 0};
}

int lives_set(struct lives *lives, const struct storage *storage, uint64_t id,
              struct core_text text, struct error_text *err)
{
    struct lives changed = *lives;
    struct life *life = find(&changed, id);
    int result;

    if (text.size == 0 || text.size > LIFE_MAX || (!life && lives->count == LIVES_MAX))
        return error_set(err, HF_EINVAL, "there is no such life, or there are too many");
    if (life && strlen(life->text) == text.size && memcmp(life->text, text.bytes, text.size) == 0)
        return HF_OK;
    if (!life)
        life = &changed.at[changed.count++];
    life->id = id;
    memcpy(life->text, text.bytes, text.size);
    life->text[text.size] = '\0';
    result = store(&changed, storage, err);
    if (result == HF_OK)
        *lives = changed;
    return result;
}

int lives_replace(struct lives *lives, const struct storage *storage, const struct lives *by,
                  struct error_text *err)
{
    int result = store(by, storage, err);

    if (result == HF_OK)
        *lives = *by;
    return result;
}

int lives_tidy(struct lives *lives, const struct storage *storage,
               bool (*keep)(void *context, uint64_t id), void *context, struct error_text *err)
{
    struct lives kept = {0};
    int result;

    for (unsigned i = 0; i < lives->count; i++)
        if (keep(context, lives->at[i].id))
            kept.at[kept.count++] = lives->at[i];
    if (kept.count == lives->count)
        return HF_OK;
    result = store(&kept, storage, err);
    if (result == HF_OK)
        *lives = kept;
    return result;
}
