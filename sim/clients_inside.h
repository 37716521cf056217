/* clients_inside.h: what the files of the clients share. */
#ifndef SIM_CLIENTS_INSIDE_H
#define SIM_CLIENTS_INSIDE_H

#include "base/switches.h"
#include "sim/sim.h"

#define MS 1000
#define GIVE_UP_US \
    (4000 * MS) /* an end or a release that nobody acknowledges: longer than most TTLs */

enum lost { LOST_RELEASED, LOST_TIME, LOST_GONE, LOST_DEATH }; /* why somebody holds no more */

int64_t client_local_us(const struct client *client, int64_t true_us);
int64_t client_when_us(const struct client *client, int64_t local);
int64_t client_ttl_us(const struct client *client);
int64_t client_deadline_us(const struct client *client);
void client_wake_at(struct sim *sim, struct client *client, int64_t local);
int64_t client_way_us(struct sim *sim);
bool client_way_breaks(struct sim *sim, struct client *client, uint64_t connection, uint64_t node);
void client_hang_up(struct sim *sim, struct client *client);
void client_choose_node(struct sim *sim, struct client *client, uint64_t hint);
void client_elsewhere(struct sim *sim, struct client *client, uint64_t hint, int64_t now);
void client_ask(struct sim *sim, struct client *client, enum ask what, int64_t now);
void client_become_idle(struct sim *sim, struct client *client, int64_t now);
void client_stop_holding(struct sim *sim, struct client *client, enum lost why);
void client_begin_lock(struct sim *sim, struct client *client, int64_t now);
bool client_write_to_resource(struct sim *sim, struct client *client, bool holds);
void client_hold(struct sim *sim, struct client *client, int64_t now);
void client_granted(struct sim *sim, struct client *client, uint64_t token, int64_t now);
void client_die(struct sim *sim, struct client *client, int64_t now);
void client_end_lease(struct sim *sim, struct client *client, int64_t now);
/* The store says that its lease is gone. */
void client_gone(struct sim *sim, struct client *client);

/* ---- clients_answers.c */

/* Whether this answers what the client is about; a wait may end long after SAY_QUEUED. */
bool client_is_asked(const struct client *client, const struct answer *answer);
void client_on_answer(struct sim *sim, struct client *client, const struct answer *answer,
                      int64_t now);

/* ---- clients_beside.c */

void client_begin_beside(struct sim *sim, struct client *client, int64_t now);
void client_beside_answered(struct sim *sim, struct client *client, const struct answer *answer,
                            int64_t now);
void client_beside_refused(struct sim *sim, struct client *client);
void client_renew_others(struct sim *sim, struct client *client);
void client_others_renewed(struct sim *sim, struct client *client, const struct answer *answer);

#endif
