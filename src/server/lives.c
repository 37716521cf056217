#include "server/lives.h"
#include "base/text.h"
#include "replica/storage.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FILE_NAME "lives"
#define NUMBER_MAX 20 /* digits */
#define REMOVED "-"   /* in place of a life */
#define MET " met"

/* One to a line: "2 91f0c4a7e2d35b68 4711", or with "met" behind it. */
static int store(const struct lives *lives, const struct storage *storage, struct error_text *err)
{
    char text[STORAGE_NOTE_MAX + 1] = "";
    size_t used = 0;

    for (unsigned i = 0; i < lives->count && used < sizeof text; i++) {
        const struct life *life = &lives->at[i];

        used += (size_t)snprintf(text + used, sizeof text - used, "%" PRIu64 " %s %" PRIu64 "%s\n",
                                 life->id, life->text[0] ? life->text : REMOVED, life->index,
                                 life->met ? MET : "");
    }
    if (used >= sizeof text)
        return error_set(err, HF_EINVAL, "too many lives for the file '" FILE_NAME "'");
    return storage_write_note(storage, FILE_NAME, text, err);
}

/* Without an index in files that were written before there was one. */
static bool read_line(const char *line, struct life *ret_life, int *ret_size)
{
    char id[NUMBER_MAX + 1], index[NUMBER_MAX + 1] = "0";

    *ret_size = 0;
    if (sscanf(line, "%20[0-9] %32[!-~] %20[0-9]%n", id, ret_life->text, index, ret_size) != 3 &&
        sscanf(line, "%20[0-9] %32[!-~]%n", id, ret_life->text, ret_size) != 2)
        return false;
    if (strcmp(ret_life->text, REMOVED) == 0)
        ret_life->text[0] = '\0';
    ret_life->met = strncmp(line + *ret_size, MET, strlen(MET)) == 0;
    if (ret_life->met)
        *ret_size += (int)strlen(MET);
    return line[*ret_size] == '\n' && text_to_u64(id, UINT64_MAX, &ret_life->id) &&
           text_to_u64(index, UINT64_MAX, &ret_life->index);
}

int lives_load(struct lives *lives, const struct storage *storage, struct error_text *err)
{
    char text[STORAGE_NOTE_MAX + 1];
    const char *at = text;
    int result = storage_read_note(storage, FILE_NAME, text, err), size;

    lives->count = 0;
    if (result != HF_OK)
        return result;
    while (*at) {
        if (lives->count == LIVES_MAX || !read_line(at, &lives->at[lives->count], &size))
            return error_set(err, HF_EIO,
                             "the file '" FILE_NAME "' in the data directory is damaged: restore "
                             "it, or the directory, from a backup");
        at += size + 1;
        lives->count++;
    }
    return HF_OK;
}

const struct life *lives_find(const struct lives *lives, uint64_t id)
{
    for (unsigned i = 0; i < lives->count; i++)
        if (lives->at[i].id == id)
            return &lives->at[i];
    return NULL;
}

struct core_text lives_text(const struct lives *lives, uint64_t id)
{
    const struct life *life = lives_find(lives, id);

    return life ? (struct core_text){life->text, strlen(life->text)} : (struct core_text){"", 0};
}

/* Of those that were removed, the one of longest ago: whoever was away for so long hears of it from the log. */
static void forget_one(struct lives *lives)
{
    struct life *oldest = NULL;

    for (unsigned i = 0; i < lives->count; i++)
        if (!lives->at[i].text[0] && (!oldest || lives->at[i].index < oldest->index))
            oldest = &lives->at[i];
    if (oldest)
        *oldest = lives->at[--lives->count];
}

static int set(struct lives *lives, const struct storage *storage, uint64_t id,
               struct core_text text, uint64_t index, bool met, struct error_text *err)
{
    struct lives changed = *lives;
    struct life *life = (struct life *)lives_find(&changed, id);
    int result;

    if (!life && changed.count == LIVES_MAX)
        forget_one(&changed);
    if (text.size > LIFE_MAX || (!life && changed.count == LIVES_MAX))
        return error_set(err, HF_EINVAL, "there is no such life, or there are too many");
    if (!life)
        life = &changed.at[changed.count++];
    life->id = id;
    life->index = index;
    life->met = met;
    if (text.size > 0)
        memcpy(life->text, text.bytes, text.size);
    life->text[text.size] = '\0';
    result = store(&changed, storage, err);
    if (result == HF_OK)
        *lives = changed;
    return result;
}

static bool is(const struct life *life, struct core_text text)
{
    return strlen(life->text) == text.size &&
           (text.size == 0 || memcmp(life->text, text.bytes, text.size) == 0);
}

int lives_meet(struct lives *lives, const struct storage *storage, uint64_t id,
               struct core_text text, struct error_text *err)
{
    const struct life *life = lives_find(lives, id);

    if (text.size == 0)
        return error_set(err, HF_EINVAL, "it says nothing of its life");
    if (life && is(life, text))
        return HF_OK;
    return set(lives, storage, id, text, life ? life->index : 0, true, err);
}

int lives_learn(struct lives *lives, const struct storage *storage, uint64_t id,
                struct core_text text, uint64_t index, struct error_text *err)
{
    const struct life *life = lives_find(lives, id);

    if (life ? life->index >= index || (is(life, text) && !life->met) : text.size == 0)
        return HF_OK;
    return set(lives, storage, id, text, index, false, err);
}

void lives_tell(const struct lives *lives, char ret_text[LIVES_TEXT_MAX + 1])
{
    size_t used = 0;

    ret_text[0] = '\0';
    for (unsigned i = 0; i < lives->count; i++) {
        const struct life *life = &lives->at[i];

        if (!life->met && life->index > 0)
            used += (size_t)snprintf(ret_text + used, LIVES_TEXT_MAX + 1 - used,
                                     "%s%" PRIu64 "/%s/%" PRIu64, used > 0 ? "," : "", life->id,
                                     life->text[0] ? life->text : REMOVED, life->index);
    }
}

int lives_told(struct lives *lives, const struct storage *storage, uint64_t but, const char *text,
               struct error_text *err)
{
    char id[NUMBER_MAX + 1], life[LIFE_MAX + 1], index[NUMBER_MAX + 1];
    int result = HF_OK, size = 0;

    while (result == HF_OK &&
           sscanf(text, "%20[0-9]/%32[-0-9a-f]/%20[0-9]%n", id, life, index, &size) == 3) {
        uint64_t number, at;
        bool removed = strcmp(life, REMOVED) == 0;

        if (!text_to_u64(id, UINT64_MAX, &number) || !text_to_u64(index, UINT64_MAX, &at))
            break;
        if (number != but)
            result = lives_learn(lives, storage, number,
                                 (struct core_text){life, removed ? 0 : strlen(life)}, at, err);
        text += size;
        text += *text == ',';
    }
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
