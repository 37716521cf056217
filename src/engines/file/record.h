/* record.h: what is known of a key: that somebody runs it, or what came out. One file beside the key's
 * lock file, made whole under another name, synced, and put in place by rename; so it is always one of
 * the two, or not there.
 *
 *      0   8  "HFONCE01"
 *      8  40  when its time began: the boot id, as text
 *     48   8  milliseconds of bootclock_now_ms then
 *     56   8  hash_bytes of the 48 bytes before. All 56 bytes 0: its time has not begun
 *     64   4  crc32c of bytes 68 to 615
 *     68   4  1: somebody runs it. 2: it is done
 *     72   8  token of whoever runs or ran it
 *     80   8  for how many milliseconds it is known, from when its time begins
 *     88   4  length of the key
 *     92   4  bytes of the result
 *     96   4  crc32c of the result
 *    100   4  0
 *    104 512  the key
 *    616   …  the result
 *
 * Numbers are in the machine's own byte order: the file never leaves the machine.
 *
 * Time. What came out is known from when it is stored; a death, from when somebody first finds the file
 * of a runner that has gone. The wall clock is not asked. After a reboot the time of the last boot says
 * nothing any more, and what is left begins anew with the first look: known for longer, never shorter.
 * The 56 bytes of the time are overwritten in place and never synced: torn or lost, they only make it
 * begin anew.
 *
 * Whoever writes a record may be killed before it has synced the folder: then the record is there for all
 * who look, and gone when the power fails. The time begins after that sync. So [R1] whoever finds that it
 * has not begun syncs the folder himself before he tells anybody, and begins it. */
#ifndef ENGINES_FILE_RECORD_H
#define ENGINES_FILE_RECORD_H

#include "base/bootclock.h"
#include "engines/file/directory.h"

#include <stdbool.h>
#include <stdint.h>

/* No encoded name has a '~' but one that is followed by 64 digits. */
#define RECORD_SUFFIX "~record"

enum record_kind { RECORD_NONE, RECORD_RUNNING, RECORD_DONE };

struct record {
    enum record_kind kind; /* NONE: nothing is known; then the rest is 0 */
    uint64_t token;
    bool begun;      /* its time has begun; never of somebody who runs */
    int64_t left_ms; /* of its time; 0: it is over */
    void *bytes;     /* of what came out: malloc'ed, NULL when there are none or none were wanted */
    size_t size;
};

/* What the functions need to know: the folder, and the clock. */
struct record_place {
    const struct directory *directory; /* in locks_fd */
    const struct bootclock *clock;
};

/* What is known of a key. The time of what is done begins here if it did in another boot. HF_EIO: the
 * file is damaged; HF_EREFUSED: it is another key's. Both leave it alone. */
int record_read(const struct record_place *place, const char *key, bool with_result,
                struct record *ret_record, struct error_text *err);
/* Only the key that a file of this name belongs to, and whether it is known and its time not over.
 * False: it is damaged. ret_key: HF_NAME_MAX + 1 bytes. */
bool record_glance(const struct record_place *place, const char *file_name, char *ret_key,
                   bool *ret_fresh);

/* What was found there stays there when the power fails [R1]. 0, or an errno. */
int record_settle(const struct record_place *place);

/* The rest is for whoever has the key's lock. */

/* Puts it in place of whatever was there; done: its time begins when it is durable. bytes: borrowed. HF_EUNKNOWN: it is
 * in place, and may be gone after a crash. Any other failure changes nothing. */
int record_write(const struct record_place *place, const char *key, enum record_kind kind,
                 uint64_t token, int64_t span_ms, const void *bytes, size_t size,
                 struct error_text *err);
/* The time of a runner's death begins, durably [R1]. If that cannot be written, it begins with a later look. */
void record_begin(const struct record_place *place, const char *key);
/* It may not be there. sync: it stays away after a crash, too. */
int record_remove(const struct record_place *place, const char *key, bool sync,
                  struct error_text *err);

#endif
