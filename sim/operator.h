/* operator.h: who looks after the members: adds and removes them, replaces who has lost its directory, makes others lead. One thing at a time. */
#ifndef SIM_OPERATOR_H
#define SIM_OPERATOR_H

#include "replica/replica.h"
#include "sim/chance.h"
#include "sim/disk.h"

#include <stdbool.h>
#include <stdint.h>

struct sim;
struct node;
struct packet;

enum change_kind { CHANGE_NONE, CHANGE_ADD, CHANGE_REMOVE, CHANGE_TRANSFER, CHANGE_MOVE };

struct old_copy {          /* old_copies.c */
    struct sim_disk *copy; /* NULL: none is kept */
    uint64_t of, incarnation;
    uint64_t members;      /* the index of their entry when it was taken */
    uint64_t node;         /* has such a directory, and neither stopped nor caught up; 0: none */
    uint64_t until;        /* what it must apply until it has caught up */
    uint64_t leader, term; /* who led when it was put back */
};

struct operator
{
    struct chance chance;
    enum change_kind change; /* that is under way */
    uint64_t number;         /* of it */
    uint64_t id;
    int64_t asked_us;
    uint64_t wiped; /* a member that has lost its directory, until it votes again; 0: none */
    int64_t next_change_us, next_transfer_us, next_move_us;
    struct old_copy old;
    uint64_t moves; /* so many addresses were given to members that moved */
};

void operator_begin(struct sim *sim);
void operator_event(struct sim *sim);
/* A member loses its directory, if that is legal now. */
void operator_wipe(struct sim *sim);
/* One whose directory may be lost now, so that a majority keeps what it has promised; from now on it is the one. NULL: nobody. */
struct node *operator_spares(struct sim *sim);
/* It gets a new directory, and then the leader hears of that. */
void operator_replace(struct sim *sim, struct node *node);
/* As in struct replica_host. */
void operator_changed(void *context, void *request, enum replica_change result);
/* A directory is copied, or such a copy is put back, if that is legal now. */
void old_copies_event(struct sim *sim);
void old_copies_drop(struct sim *sim);
/* It has an older copy of its directory. */
bool old_copies_may_stop(const struct sim *sim, const struct node *node);
/* This message, of the leader who knows what it had, stops it. */
bool old_copies_must_stop(const struct sim *sim, const struct node *node,
                          const struct packet *packet);
void old_copies_see(struct sim *sim, const struct node *node, uint64_t applied);
/* It has stopped because of that, and ended: it gets a new directory. */
void old_copies_replace(struct sim *sim, struct node *node);
/* Is the cluster as the operator wants it? */
bool operator_is_content(struct sim *sim);

#endif
