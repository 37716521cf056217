/* files.h: the files in a data directory (src/journal says what is in most of them):
 *
 *     node          whose directory it is: see identity.h
 *     restoring     there while a backup is being restored into it: see restore.h
 *     lock          locked by the process that uses the directory; its number inside
 *     term          term and vote
 *     log-N         segments of the log; the last one may be a spare
 *     end           how far the log went, when it was opened or stopped last
 *     snapshot-I    the table, as it was after entry I */
#ifndef NODE_FILES_H
#define NODE_FILES_H

#include "journal/directory.h"

#define FILES_NODE "node"
#define FILES_RESTORING "restoring"

/* Of these: the log and where it ended, the snapshot, the term. Not whose it is. */
bool files_is_data(const char *name);
/* Those do not make a directory one that is in use: a file system's own, and what a restore or a start that was refused has left. */
bool files_is_nothing(const char *name);
/* May a node start in it? HF_EREFUSED: half a copy of a backup is in it, or files of somebody else; what was made in it to look is
 * gone then. */
int files_check(struct directory *directory, struct error_text *err);

#endif
