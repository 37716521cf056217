/* operator.h: who looks after the members: adds and removes them, replaces who has lost its directory, makes others lead. One thing at a time. */
#ifndef SIM_OPERATOR_H
#define SIM_OPERATOR_H

#include "replica/replica.h"
#include "sim/chance.h"

#include <stdbool.h>
#include <stdint.h>

struct sim;
struct node;

enum change_kind { CHANGE_NONE, CHANGE_ADD, CHANGE_REMOVE, CHANGE_TRANSFER };

struct operator
{
    struct chance chance;
    enum change_kind change; /* that is under way */
    uint64_t number;         /* of it */
    uint64_t id;
    int64_t asked_us;
    uint64_t wiped; /* a member that has lost its directory, until it votes again; 0: none */
    int64_t next_change_us, next_transfer_us;
};

void operator_begin(struct sim *sim);
void operator_event(struct sim *sim);
/* A member loses its directory, if that is legal now. */
void operator_wipe(struct sim *sim);
/* As in struct replica_host. */
void operator_changed(void *context, void *request, enum replica_change result);
/* Is the cluster as the operator wants it? */
bool operator_is_content(struct sim *sim);

#endif
