/* identity.h: a member as libraft's configuration has it: "db1:7431/91f0c4a7e2d35b68". Before the slash where its peers reach it, behind
 * it its life: a random number, drawn with its data directory (founding.h). A node that comes back with another life has lost its
 * directory: it has forgotten which entries it acknowledged and whom it voted for. Counted again, it could help the others to forget
 * what the cluster has acknowledged.
 *
 * So id, address and life are one entry of the log, and take effect together, when it is appended.
 *
 * [I1] An id that votes in any configuration of any log has one life. A node becomes a voter by a second change, after the one that
 *      added it is committed; from then on every leader has that one, and an id is used once.
 * [I2] Who counts checks: a leader or candidate hears an answer only from the life that its own members have, and sends nothing to
 *      another one. Whoever is asked answers anybody: its own members may be older than those of who asks.
 * [I3] A node that finds another life beside its own id is not that member, and neither stands nor speaks.
 *
 * A configuration of no lives, as tests of single rooms use, is not checked. */
#ifndef REPLICA_IDENTITY_H
#define REPLICA_IDENTITY_H

#include "replica_libraft/replica.h"

struct raft_configuration;

#define IDENTITY_MAX (REPLICA_ADDRESS_MAX + 1 + REPLICA_LIFE_MAX) /* bytes */

/* A life of NULL or "": none. */
void identity_write(const char *address, const char *life, char ret_text[IDENTITY_MAX + 1]);
/* Without its life. */
void identity_address(const char *identity, char ret_address[REPLICA_ADDRESS_MAX + 1]);
/* What stands behind the slash; "": there is none. */
const char *identity_life(const char *identity);
bool identity_is_at(const char *identity, const char *address);
/* Of a member; NULL: there is no such member. */
const char *identity_find(const struct raft_configuration *members, uint64_t id);
/* Is a node with this id and life the member that these know? NULL or "": it says no life. */
bool identity_is_member(const struct raft_configuration *members, uint64_t id, const char *life);
/* Is it known to these, and with another life? */
bool identity_is_another(const struct raft_configuration *members, uint64_t id, const char *life);

#endif
