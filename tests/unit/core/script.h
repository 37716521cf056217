/* script.h: stories about the lock table, with recorded ends.
 *
 * A script is a text. A line that begins with a blank is what came out; all others are what goes
 * in, one command to an entry of the log, unless said otherwise:
 *
 *     # words, and empty lines
 *     +250                         so many ms pass (an entry; several if more than 1000)
 *     term                         the first entry of another leader's term
 *     acquire NAME LEASE [ttl MS] [wait MS|forever push|kept] [shared] [permits N] [delay MS]
 *             [owner WORD] [no-heir] [user WORD [leases N] [holds N] [places N]]
 *                                                  (on one line; without ttl: 30000)
 *     release NAME LEASE [token T]
 *     renew LEASE… [ttl MS]
 *     end LEASE [ttl MS]
 *     leave NAME LEASE attachment N
 *     break NAME [now]
 *     floor T
 *     finish NAME LEASE token T keep MS result WORD
 *     identity WORD [force]        WORD has 16 characters
 *     member ID [ADDRESS]          without one it is forgotten
 *     read
 *     { [+MS] [term]               the lines up to } are the commands of one entry
 *     many N COMMAND               one entry with N commands; each % is the number, from 1
 *
 *     show NAME                    who holds it, who waits, and its record
 *     alive NAME T                 is that hold alive?
 *     count                        how many there are of what
 *     usage WORD                   what that user has
 *     next                         when the next deadline is due
 *
 * A NAME that begins with once: is a once-record's key. A command that breaks a limit is not packed,
 * and nothing of it goes in. */
#ifndef TESTS_CORE_SCRIPT_H
#define TESTS_CORE_SCRIPT_H

#include <stdbool.h>

/* Plays the script and returns it with what came out now (malloc'ed). After every entry the table
 * obeys its invariants, and restored from a snapshot it has the same hash. reborn: from there it goes
 * on with the restored one. What is wrong with the script or the table fails the test. */
char *script_play(const char *path, const char *script, bool reborn);

#endif
