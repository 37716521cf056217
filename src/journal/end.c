#include "journal/end.h"
#include "base/crc32c.h"
#include "base/text.h"
#include "journal/text_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPEN "open"
#define DIGITS_MAX 20
#define TEXT_MAX 160 /* bytes: three numbers, two checksums, and the words */

static void render(const struct end *end, char ret_text[TEXT_MAX])
{
    int used = snprintf(
        ret_text, TEXT_MAX,
        "log-%" PRIu64 "\ngroup %" PRIu64 "\nentry %" PRIu64 "\nchecksum %08" PRIx32 "\n%s\n",
        end->segment, end->group, end->index, end->checksum, end->open ? OPEN : "closed");

    snprintf(ret_text + used, TEXT_MAX - (size_t)used, "mark %08" PRIx32 "\n",
             crc32c(0, ret_text, (size_t)used));
}

static int refuse(const struct directory *directory, struct error_text *err)
{
    return error_set(err, HF_EIO,
                     "%s/" END_FILE ", which says how far the log goes, is damaged: restore the "
                     "directory from a backup",
                     directory->path);
}

static bool parse(const char *text, struct end *ret_end)
{
    char segment[DIGITS_MAX + 1], group[DIGITS_MAX + 1], index[DIGITS_MAX + 1], checksum[9];
    char state[8];

    if (sscanf(text, "log-%20[0-9] group %20[0-9] entry %20[0-9] checksum %8[0-9a-f] %7[a-z]",
               segment, group, index, checksum, state) != 5)
        return false;
    *ret_end = (struct end){.known = true,
                            .open = strcmp(state, OPEN) == 0,
                            .checksum = (uint32_t)strtoul(checksum, NULL, 16)};
    return text_to_u64(segment, UINT64_MAX, &ret_end->segment) &&
           text_to_u64(group, UINT64_MAX, &ret_end->group) &&
           text_to_u64(index, UINT64_MAX, &ret_end->index);
}

/* Whatever is read must be, byte for byte, what would be written. */
int end_load(const struct directory *directory, struct end *ret_end, struct error_text *err)
{
    char text[TEXT_FILE_MAX + 1], again[TEXT_MAX];
    struct end end;
    int result = text_file_read(directory, END_FILE, text, err);

    *ret_end = (struct end){0};
    if (result != HF_OK)
        return result;
    if (!text[0])
        return directory->disk->look(directory->disk, directory->handle, END_FILE) == ENOENT
                   ? HF_OK
                   : refuse(directory, err);
    if (!parse(text, &end))
        return refuse(directory, err);
    render(&end, again);
    if (strcmp(text, again) != 0)
        return refuse(directory, err);
    *ret_end = end;
    return HF_OK;
}

int end_store(const struct directory *directory, const struct end *end, struct error_text *err)
{
    char text[TEXT_MAX];

    render(end, text);
    return text_file_write(directory, END_FILE, text, err);
}

bool end_is_same(const struct end *one, const struct end *other)
{
    return one->segment == other->segment && one->group == other->group &&
           one->index == other->index && one->checksum == other->checksum;
}
