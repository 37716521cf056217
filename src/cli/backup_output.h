/* backup_output.h: the file of 'holdfast cluster backup'. What comes is written to a file without a name, or beside it, and takes its name when all of it
 * is on the disk: whoever looks finds the backup of before, or the new one, or none. */
#ifndef CLI_BACKUP_OUTPUT_H
#define CLI_BACKUP_OUTPUT_H

#include "base/error.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct backup_output {
    int fd;
    bool is_stdout, is_new;     /* no file has the name yet */
    char path[PATH_MAX];        /* what a symbolic link leads to; "" on standard output */
    char beside[PATH_MAX + 16]; /* the name that it has until then; "": none */
};

/* "-": the standard output. A file that is there is replaced if it is a backup, or empty. HF_EREFUSED: it is something else, or cannot be made
 * there. */
int backup_output_open(struct backup_output *output, const char *path, struct error_text *err);
/* At that place; 0: what was written before counts no more. HF_EIO. */
int backup_output_write(struct backup_output *output, uint64_t offset, const void *bytes,
                        size_t size, struct error_text *err);
/* All of it is there: it gets its name. HF_EIO, HF_EREFUSED. */
int backup_output_finish(struct backup_output *output, struct error_text *err);
/* Whether or not it is finished; what is not leaves nothing behind. */
void backup_output_close(struct backup_output *output);

#endif
