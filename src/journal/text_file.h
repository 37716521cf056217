/* text_file.h: a short text in the data directory, for people too. It is there whole, or as it was before. */
#ifndef JOURNAL_TEXT_FILE_H
#define JOURNAL_TEXT_FILE_H

#include "base/error.h"
#include "journal/directory.h"

#define TEXT_FILE_MAX 8191    /* bytes */
#define TEXT_FILE_NAME_MAX 31 /* of the name of its file */

/* "" if there is none. HF_EIO: it cannot be read, is too long, or is no text: it has a NUL in it, as what a crash leaves may. */
int text_file_read(const struct directory *directory, const char *name,
                   char ret_text[TEXT_FILE_MAX + 1], struct error_text *err);
/* Durable when it returns. */
int text_file_write(const struct directory *directory, const char *name, const char *text,
                    struct error_text *err);

/* The same for a text of lines, with their checksum as the last one. One without, which was written before there were checksums, is
 * taken as it is. HF_EIO: it is damaged. */
int text_file_read_checked(const struct directory *directory, const char *name,
                           char ret_text[TEXT_FILE_MAX + 1], struct error_text *err);
int text_file_write_checked(const struct directory *directory, const char *name, const char *text,
                            struct error_text *err);

#endif
