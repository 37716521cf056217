#include "node/node_file.h"
#include "base/text.h"
#include "journal/text_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ID_MAX 20 /* digits */

static const char *const how_words[] = {
    [NODE_BOOTSTRAPPED] = "founded", [NODE_JOINED] = "joined", [NODE_MEMBER] = "member"};

static bool read_how(const char *word, enum node_file_how *ret_how)
{
    for (int how = NODE_BOOTSTRAPPED; how <= NODE_MEMBER; how++)
        if (strcmp(word, how_words[how]) == 0) {
            *ret_how = (enum node_file_how)how;
            return true;
        }
    return false;
}

/* One line, without its end. False: it is none of ours. */
static bool read_line(const char *line, struct node_file *file)
{
    char id[ID_MAX + 1], life[INCARNATION_DIGITS + 1], word[8], cluster[CLUSTER_ID_DIGITS + 1];
    int end = 0;

    if (sscanf(line, "node %20[0-9]%n", id, &end) == 1)
        return !line[end] && text_to_u64(id, UINT64_MAX, &file->id);
    if (sscanf(line, "life %16[0-9a-f]%n", life, &end) == 1) {
        file->incarnation = strtoull(life, NULL, 16);
        return !line[end] && strlen(life) == INCARNATION_DIGITS;
    }
    if (sscanf(line, "cluster %3071s%n", file->members, &end) == 1)
        return !line[end];
    if (sscanf(line, "founders %3071s%n", file->initial_members, &end) == 1)
        return !line[end];
    if (sscanf(line, "%7[a-z] %32[0-9a-f]%n", word, cluster, &end) == 2 &&
        read_how(word, &file->how)) {
        memcpy(file->cluster, cluster, sizeof cluster);
        return !line[end] && strlen(cluster) == CLUSTER_ID_DIGITS;
    }
    return sscanf(line, "restored %127[ -~]%n", file->restored, &end) == 1 && !line[end];
}

static bool read_lines(char *text, struct node_file *file)
{
    while (*text) {
        char *end = strchr(text, '\n');

        if (!end)
            return false;
        *end = '\0';
        if (!read_line(text, file))
            return false;
        text = end + 1;
    }
    return file->id != 0 && file->incarnation != 0;
}

int node_file_read(const struct directory *directory, struct node_file *ret_file,
                   struct error_text *err)
{
    char text[TEXT_FILE_MAX + 1];
    int result = text_file_read_checked(directory, FILES_NODE, text, err);

    *ret_file = (struct node_file){.there = text[0]};
    if (result != HF_OK || !text[0])
        return result;
    if (!read_lines(text, ret_file))
        return error_set(err, HF_EIO, "%s/" FILES_NODE " is damaged: restore it from a backup",
                         directory->path);
    return HF_OK;
}

/* "name value\n", or nothing if there is no value. */
static void add_line(char *text, const char *name, const char *value)
{
    size_t used = strlen(text);

    if (value[0])
        snprintf(text + used, TEXT_FILE_MAX + 1 - used, "%s %s\n", name, value);
}

int node_file_write(const struct directory *directory, const struct node_file *file,
                    struct error_text *err)
{
    char text[TEXT_FILE_MAX + 1];

    snprintf(text, sizeof text, "node %" PRIu64 "\nlife %016" PRIx64 "\n", file->id,
             file->incarnation);
    add_line(text, "cluster", file->members);
    add_line(text, how_words[file->how], file->cluster);
    add_line(text, "founders", file->initial_members);
    add_line(text, "restored", file->restored);
    return text_file_write_checked(directory, FILES_NODE, text, err);
}

bool node_file_same(const struct node_file *one, const struct node_file *other)
{
    return one->there == other->there && one->id == other->id && one->how == other->how &&
           one->incarnation == other->incarnation && strcmp(one->members, other->members) == 0 &&
           strcmp(one->initial_members, other->initial_members) == 0 &&
           strcmp(one->cluster, other->cluster) == 0 && strcmp(one->restored, other->restored) == 0;
}
