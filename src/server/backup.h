/* backup.h: CLUSTER BACKUP and CLUSTER PIECE: the table, as the leader has it, while it serves.
 *
 *     BACKUP ──▶ its place in the log ──▶ an id ──▶ a snapshot (src/node/backup_taking.c) ──▶ PIECE id 0, PIECE id n, … PIECE id size
 *
 * Because of its place in the log, what was acknowledged before it is in the snapshot, and a leader that has lost its majority answers nothing. The
 * pieces are asked for one by one, so that nothing of the table is in the output of a client but one of them. Whoever leads no more gives up all its
 * backups: two leaders' pieces have no id in common, and are never one backup. */
#ifndef SERVER_BACKUP_H
#define SERVER_BACKUP_H

#include "node/node.h"
#include "session/commands.h"

#include <stdbool.h>
#include <stdint.h>

#define BACKUPS_MAX 4u        /* at a time; one whose client has gone makes room */
#define BACKUP_IDLE_MS 30000u /* without a question for a piece: then it is given up */

struct server;

struct backup {
    struct server *server;
    uint64_t id; /* 0: unused. Random */
    enum {
        BACKUP_WANTED, /* the log has come to its place: it is begun in the next round */
        BACKUP_TAKEN,  /* the node takes it */
        BACKUP_READY,
        BACKUP_FAILED /* `why` */
    } state;
    struct node_backup *taking;
    struct node_backup_about about;
    struct error_text why;
    struct request *request; /* PIECE that is being read; NULL: none */
    uint64_t offset;         /* of that */
    int64_t used_ms;
    uint64_t connection; /* that has asked for it last: it may come back by another one */
};

struct backups {
    struct backup at[BACKUPS_MAX];
};

enum verdict command_cluster_backup(struct session *, const struct resp_node *);
enum verdict command_cluster_piece(struct session *, const struct resp_node *);
/* In each round, outside of the replica's: begins what is wanted. */
void backups_go_on(struct server *server);
/* There is one to be begun, and no reason to sleep. */
bool backups_wanted(const struct server *server);
/* Gives up what nobody asks for any more. */
void backups_second(struct server *server);
/* All of them end: this node leads no more, or stops. */
void backups_drop(struct server *server);

#endif
