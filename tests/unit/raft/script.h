/* script.h: stories about consensus, with recorded ends.
 *
 * A script is a text. A line that begins with a blank is what came out; all others are what happens, one step each. Nodes are
 * letters. INDEX/TERM is an entry.
 *
 *     # words, and empty lines
 *     cluster A B C [window N] [bytes N] [links N]
 *                                  these voters, founded: entry 1, of term 1; so many entries may be uncommitted (8), so many
 *                                  bytes in flight to a follower (1000). What was before is forgotten. links: so many messages
 *                                  from one to another, the oldest are lost, and those that can have no effect, too
 *     node D                       an empty node that knows nobody
 *     log A [TERM[x]…] [term N] [vote B] [commit N]
 *                                  A begins anew with this log behind entry 1, all of it durable; x: with another content
 *     disk A waits|at-once         whether A's writes are durable at once (they are) or by `written`
 *
 *     time A                       A's clock goes to when A is due next
 *     due A                        about when that is
 *     pass MS                      all clocks go on, and nobody is told
 *     deliver A B [N]              the first, or N-th, message from A to B; or: deliver all, in their order
 *     again A B [N]                likewise, and it comes once more
 *     drop A B [N]                 it is lost; or: drop all
 *     hold A B, release A B        `deliver all` and `settle` leave these; no longer
 *     settle                       everything is delivered; only how the nodes are afterwards is told
 *     written A                    the first of A's writes is durable
 *     crash A [keep N]             so many entries of the writes that wait are there afterwards
 *     wipe A                       it loses its directory, and is another incarnation
 *     start A
 *     copy A                       A's directory is copied as it is
 *     put-back A                   A is down, and its directory is that copy from now on
 *     propose A [N] [size BYTES]   N commands in one round
 *     change A add|promote|remove|move D [asked MS]
 *                                  asked: so long ago; else A need not have heard anybody since
 *     transfer A [B]               leadership goes to B, or anybody
 *     down A B                     A's connection with B ends
 *     snapshot A                   A takes a snapshot of all that it knows to be committed
 *     install A B                  B gets the snapshot that A has
 *     campaign A                   as if a leader had told it to
 *     elect A by B…                that, and these get its requests; told is only how A is afterwards
 *     forge A B TYPE [after N] [FIELD N]…
 *                                  B gets a message that A did not send; after: as A's log has it there. Fields: term, index,
 *                                  index-term, chain, commit, yes, to-term, at, hint, hint-term, incarnation, acked, acked-by,
 *                                  by-order
 *     state [A…]                   how they are
 *     network                      what is under way */
#ifndef TESTS_RAFT_SCRIPT_H
#define TESTS_RAFT_SCRIPT_H

#include "cluster.h"

#define SCRIPT_WRONG_MAX 256

/* Plays the script and returns it with what came out now (malloc'ed); NULL: it is no script, and ret_wrong says why. cluster:
 * how the nodes are at the end. */
char *script_play(const char *script, struct cluster *cluster, char ret_wrong[SCRIPT_WRONG_MAX]);

#endif
