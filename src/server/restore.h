/* restore.h: holdfastd --restore-from: a data directory from a backup. */
#ifndef SERVER_RESTORE_H
#define SERVER_RESTORE_H

struct config;

/* Returns an exit status. */
int restore_backup(const struct config *config);

#endif
