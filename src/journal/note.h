/* note.h: a short text in the data directory, for people too. It is there whole, or as it was before. */
#ifndef JOURNAL_NOTE_H
#define JOURNAL_NOTE_H

#include "base/error.h"
#include "journal/directory.h"

#define NOTE_MAX 8191    /* bytes */
#define NOTE_NAME_MAX 31 /* of the name of its file */

/* "" if there is none. HF_EIO: it cannot be read, or is too long. */
int note_read(const struct directory *directory, const char *name, char ret_text[NOTE_MAX + 1],
              struct error_text *err);
/* Durable when it returns. */
int note_write(const struct directory *directory, const char *name, const char *text,
               struct error_text *err);

/* The same for a text of lines, with their checksum as the last one. One without, which was written before there were checksums, is
 * taken as it is. HF_EIO: it is damaged. */
int note_read_checked(const struct directory *directory, const char *name,
                      char ret_text[NOTE_MAX + 1], struct error_text *err);
int note_write_checked(const struct directory *directory, const char *name, const char *text,
                       struct error_text *err);

#endif
