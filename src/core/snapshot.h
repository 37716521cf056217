/* snapshot.h: the format of a snapshot, for its writer, its reader and the state's hash.
 *
 *     magic      8 bytes, "HFSNAP1\n"
 *     header     varints: now, last token, last ticket, last attachment, leases, locks, claims;
 *                then a byte, 1 if the store has its id, and the id's 16 bytes
 *     records    in any order:
 *       'M'      member of the cluster: id, address; all of them before the others, by their ids
 *       'L'      lease: slot, id, ttl, deadline, then a byte, 1 if it has ended
 *       'U'      the same of a lease that is a user's, and then his name
 *       'N'      name: slot, name, a byte (1: a once-record's key), permits, holds, places, then its
 *                claims (holds first, each list in order), then a byte for what became of it:
 *                0 nothing, 1 died, 2 result; and unless 0: token, deadline; and of 2: the result
 *       claim    slot, slot of its lease plus one (0: a ghost), state, mode and flags as three bytes,
 *                number, since, deadline (0: none), delay, attachment, owner; and of a ghost that
 *                has the flag 8: the name of the user whose hold it was
 *     end        'E', then 8 bytes: the checksum of all before it
 *
 * A table without users has neither 'U' nor that flag, and can be read by whoever reads version 1 of the formats. What a user has follows from
 * his leases and ghosts.
 *
 * Numbers are varints: seven bits to a byte, the least first, the eighth bit set if more follow.
 * Texts have their length before them. Slots are kept, because they decide in which order equal
 * deadlines end. A snapshot that was taken in one step has its records in the order of their slots
 * and is the same, byte for byte, for equal tables; taken in steps beside changes, only the order of
 * the records may differ. */
#ifndef CORE_SNAPSHOT_H
#define CORE_SNAPSHOT_H

#include "core/inside.h"

#define SNAPSHOT_MAGIC "HFSNAP1\n"
#define SNAPSHOT_MAGIC_SIZE 8u
#define SNAPSHOT_SUM_SIZE 8u
#define SNAPSHOT_BLOCK \
    65536u /* the checksum goes over blocks of this size, each with the sum so far */
#define SNAPSHOT_MEMBER 'M'
#define SNAPSHOT_LEASE 'L'
#define SNAPSHOT_LEASE_OF_USER 'U'
#define SNAPSHOT_LOCK 'N'
#define SNAPSHOT_END 'E'
#define SNAPSHOT_NO_RECORD 0
#define SNAPSHOT_DIED 1
#define SNAPSHOT_DONE 2

struct snapshot_writer {
    unsigned char *bytes;
    size_t size, capacity;
};

/* With the members, which are few. */
void snapshot_write_header(struct snapshot_writer *writer, const struct core *core);
void snapshot_write_lease(struct snapshot_writer *writer, const struct core *core, uint32_t lease);
void snapshot_write_lock(struct snapshot_writer *writer, const struct core *core, uint32_t lock);
/* Of a lock without its claims, and a claim by itself: neither grows with how many wait. */
void snapshot_write_lock_alone(struct snapshot_writer *writer, const struct core *core,
                               uint32_t lock);
void snapshot_write_claim(struct snapshot_writer *writer, const struct core *core, uint32_t claim);
/* The sum so far, and one more block. */
uint64_t snapshot_sum(uint64_t sum, const void *block, size_t size);

#endif
