/* backup.h: the backup that is restored: a copy of a data directory, which is only read, and its files, which are copied once more. On
 * the system's disk. */
#ifndef NODE_BACKUP_H
#define NODE_BACKUP_H

#include "journal/directory.h"

/* HF_EREFUSED: it cannot be opened, is half a copy, or a server runs in it. It is not locked: directory_close closes it. */
int backup_open(const char *path, struct directory *ret_source, struct error_text *err);
/* HF_EREFUSED: the path is in the backup, or it is the backup. A backup that is written to is none any more. */
int backup_check_apart(const char *backup, const char *path, struct error_text *err);
/* All files of the log, durably. HF_EREFUSED: there are none. HF_EIO: one cannot be read, or written. */
int backup_copy(const struct directory *source, const struct directory *target,
                struct error_text *err);

#endif
