#include "node/files.h"
#include "journal/text_file.h"

#include <string.h>

bool files_is_data(const char *name)
{
    uint64_t number;

    return strcmp(name, "term") == 0 || strcmp(name, "end") == 0 ||
           directory_number_in(name, "log-", &number) ||
           directory_number_in(name, "snapshot-", &number);
}

bool files_is_nothing(const char *name)
{
    const char *ending = strrchr(name, '.');

    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, DIRECTORY_LOCK) == 0 ||
           strcmp(name, "lost+found") == 0 || (ending && strcmp(ending, ".new") == 0);
}

static int check_restored(const struct directory *directory, struct error_text *err)
{
    char text[TEXT_FILE_MAX + 1];
    int result = text_file_read(directory, FILES_RESTORING, text, err);

    if (result == HF_OK && text[0])
        return error_set(
            err, HF_EREFUSED,
            "a restore into %s did not come to its end: run 'holdfastd --restore-from' "
            "again",
            directory->path);
    return result;
}

static int expect_ours(void *context, const char *name, struct error_text *err)
{
    const struct directory *directory = context;

    if (files_is_data(name) || files_is_nothing(name))
        return HF_OK;
    return error_set(
        err, HF_EREFUSED,
        "%s is no data directory of holdfastd, and not empty (there is %s): name an empty one, "
        "or one that is not there yet",
        directory->path, name);
}

/* Of a directory that nobody has had before. A server that found itself among other files would be in the way of theirs, and they of its. */
static int check_foreign(struct directory *directory, struct error_text *err)
{
    int result;

    if (directory_has(directory, FILES_NODE))
        return HF_OK;
    result = directory_each(directory, expect_ours, directory, err);
    if (result != HF_OK)
        directory_leave_alone(directory);
    return result;
}

int files_check(struct directory *directory, struct error_text *err)
{
    int result = check_restored(directory, err);

    return result == HF_OK ? check_foreign(directory, err) : result;
}
