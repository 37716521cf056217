/* sequencer.c: see sequencer.h. */
#include "base/sequencer.h"

#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ID_KEEPS "-"
#define NAME_KEEPS "-_.~/:"
#define MODE_LETTERS "xsp" /* in the order of enum hf_mode */
#define ENCODED_ID_MAX (3 * SEQUENCER_STORE_MAX + 1)

size_t sequencer_write(const struct sequencer *sequencer, char ret_text[HF_SEQUENCER_MAX])
{
    char id[ENCODED_ID_MAX], name[3 * HF_NAME_MAX + 1];
    int length;

    text_percent_encode(sequencer->store, strlen(sequencer->store), ID_KEEPS, id, sizeof id);
    text_percent_encode(sequencer->name, strlen(sequencer->name), NAME_KEEPS, name, sizeof name);
    length = snprintf(ret_text, HF_SEQUENCER_MAX, "hf1.%s.%c.%" PRIu64 ".%s", id,
                      MODE_LETTERS[sequencer->mode], sequencer->token, name);
    INVARIANT(length > 0 && length < HF_SEQUENCER_MAX);
    return (size_t)length;
}

/* The text up to the next dot, which is passed over. False if there is none or it is too long. */
static bool take_part(const char **text, char *ret_part, size_t size)
{
    const char *dot = strchr(*text, '.');
    size_t length = dot ? (size_t)(dot - *text) : 0;

    if (length == 0 || length >= size)
        return false;
    memcpy(ret_part, *text, length);
    ret_part[length] = '\0';
    *text = dot + 1;
    return true;
}

static bool parse(const char *text, struct sequencer *ret_sequencer)
{
    char version[8], id[ENCODED_ID_MAX], mode[4], token[24];
    const char *letter;

    if (!take_part(&text, version, sizeof version) || strcmp(version, "hf1") != 0 ||
        !take_part(&text, id, sizeof id) ||
        !text_percent_decode(id, strlen(id), ret_sequencer->store, sizeof ret_sequencer->store) ||
        !take_part(&text, mode, sizeof mode) || strlen(mode) != 1 ||
        !take_part(&text, token, sizeof token) ||
        !text_to_u64(token, HF_TOKEN_MAX, &ret_sequencer->token) || ret_sequencer->token == 0 ||
        !*text ||
        !text_percent_decode(text, strlen(text), ret_sequencer->name, sizeof ret_sequencer->name))
        return false;
    letter = strchr(MODE_LETTERS, mode[0]);
    ret_sequencer->mode = letter ? (int)(letter - MODE_LETTERS) : -1;
    return letter != NULL;
}

int sequencer_parse(const char *text, size_t size, struct sequencer *ret_sequencer,
                    struct error_text *err)
{
    char copy[HF_SEQUENCER_MAX];
    struct sequencer parts;

    if (text && size < sizeof copy && !memchr(text, '\0', size)) {
        memcpy(copy, text, size);
        copy[size] = '\0';
        if (parse(copy, &parts)) {
            *ret_sequencer = parts;
            return HF_OK;
        }
    }
    return error_set(err, HF_EINVAL, "this is not a sequencer (hf1.STORE.MODE.TOKEN.NAME)");
}
