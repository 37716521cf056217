/* lockfile.h: one name's file, its format, and the byte ranges that the kernel locks for us.
 *
 * The content only decorates. Who holds a name, with which token, and who waits, is said by the
 * kernel's open-file-description locks on ranges of the file (most of them far beyond its end):
 *
 *   GATE    a writer who waits for readers to leave keeps new ones out with it
 *   MAIN    exclusive: the exclusive holder. shared: readers and permit holders
 *   WAIT    shared, at WAIT + pid * 1024 + n: "I wait". A releaser asks whether anybody does
 *   WATCH   shared, likewise: "I observe"
 *   SLOT    exclusive, at SLOT + i: permit i, or record i of a reader
 *   TOKEN   exclusive, at TOKEN + token: "the hold with this token is alive". So the kernel itself
 *           knows the tokens, and forgets them with the process
 *   HEAD    exclusive, at HEAD + token: the one waiter who watches for the death of that holder
 *
 *      0   8  "HFLOCK01"
 *      8   4  bell: a futex on which those sleep who wait or observe; grows so that nobody oversleeps
 *     12   4  permits: N while the name is used with permits, else 0
 *     16   4  length of the name
 *     20   4  attention: not 0 when somebody may wait or observe, so that it is worth ringing
 *     24   8  hash_bytes of the name
 *     32 512  the name
 *    544   4  watchers: not 0 when somebody may observe
 *    548   4  replaced: not 0 when `break` has put, or is about to put, another file in its place
 *    552   8  withheld.until_ms: not 0 when `break` has put it here; by bootclock_now_ms (withhold.h)
 *    560   8  0
 *    568  48  withheld.old_name: what was here before, under this name in the same folder
 *    616   4  looked: when one of those who wait last looked on its own account; CLOCK_BOOTTIME in ms, mod 2^32
 *    620   4  missed: grows with every change that those must hear of who are not asleep
 *   1024 256  record 0: the exclusive holder
 *   1280 256  record 1: the reader or permit holder with slot 0, and so on
 */
#ifndef ENGINES_FILE_LOCKFILE_H
#define ENGINES_FILE_LOCKFILE_H

#include "engines/file/directory.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define LOCKFILE_PAGE 4096
#define LOCKFILE_RECORDS_AT 1024
#define LOCKFILE_SLOTS_MAX 4096 /* readers, or permits, at once */
#define LOCKFILE_NAME_MAX 200   /* bytes of an encoded file name; longer ones are cut and hashed */

#define RANGE_GATE INT64_C(0)
#define RANGE_MAIN INT64_C(1)
#define RANGE_WAIT (INT64_C(1) << 33)
#define RANGE_WATCH (INT64_C(2) << 33)
#define RANGE_SLOT (INT64_C(3) << 33)
#define RANGE_TOKEN (INT64_C(1) << 56)
#define RANGE_HEAD (INT64_C(2) << 56)
#define RANGE_TOKENS ((int64_t)HF_TOKEN_MAX + 1) /* the length of the two */
#define RANGE_PER_PID 1024

struct lock_record {
    uint64_t check; /* hash_bytes of what follows */
    uint64_t token;
    int64_t granted_boot_ms;
    int64_t pid;
    uint32_t mode;
    uint32_t permits;
    char lease_digest[24];
    char owner[HF_OWNER_MAX + 8];
    int64_t wait_place; /* the WAIT that it may still have from before the grant, or 0 */
    char reserved[48];
};

struct lockfile_withheld {
    _Atomic int64_t until_ms;
    uint64_t reserved;
    char old_name[48];
};

struct lockfile_page {
    char magic[8];
    _Atomic uint32_t bell;
    _Atomic uint32_t permits;
    uint32_t name_length;
    _Atomic uint32_t attention;
    uint64_t name_check;
    char name[HF_NAME_MAX];
    _Atomic uint32_t watchers;
    _Atomic uint32_t replaced;
    struct lockfile_withheld withheld;
    _Atomic uint32_t looked;
    _Atomic uint32_t missed;
    char reserved1[400];
    struct lock_record records[12];
};

#define LOCKFILE_WITHHELD_AT ((off_t)offsetof(struct lockfile_page, withheld))

_Static_assert(sizeof(struct lock_record) == 256, "the format of a lock file");
_Static_assert(offsetof(struct lockfile_page, withheld) == 552, "the format of a lock file");
_Static_assert(sizeof(struct lockfile_page) == LOCKFILE_PAGE, "the format of a lock file");

struct lockfile {
    int fd;
    struct lockfile_page *page; /* mapped (not through fd); NULL when opened to look only */
    dev_t device;
    ino_t inode;
    char file_name[LOCKFILE_NAME_MAX + 100];
};

/* The file name of a lock's name, unique and printable. */
void lockfile_encode_name(const char *name, char ret_file_name[LOCKFILE_NAME_MAX + 100]);

/* Opens, creating it if need be. The descriptor is closed in the child of a fork. */
int lockfile_open(const struct directory *directory, const char *name, struct lockfile *ret_file,
                  struct error_text *err);
/* Opens to look only. HF_OK with fd -1 if there is no such file. */
int lockfile_open_to_look(const struct directory *directory, const char *file_name,
                          struct lockfile *ret_file, struct error_text *err);
/* A new file for the name, not yet in its place: `ret_temp_name` in the locks directory. */
int lockfile_create(const struct directory *directory, const char *name, char *ret_temp_name,
                    struct lockfile *ret_file, struct error_text *err);
void lockfile_close(struct lockfile *file);
/* Is this file still the one that the name means? Asks the filesystem. */
bool lockfile_is_current(const struct directory *directory, const struct lockfile *file);
/* Nothing or another file is in its place: somebody has removed it, or its whole folder, or `break` has replaced it. Only if that
 * is certain. */
bool lockfile_is_displaced(const struct directory *directory, const struct lockfile *file);
/* Has `break` put another in its place? Costs a load unless there is reason to look. */
bool lockfile_is_replaced(const struct directory *directory, const struct lockfile *file);
/* Reads the name out of the file. 0; -1: it is damaged; or an errno: nobody knows. ret_name: HF_NAME_MAX + 1 bytes. */
int lockfile_read_name(const struct lockfile *file, char *ret_name);

/* Ranges. type is F_RDLCK, F_WRLCK or F_UNLCK; length 0 means to the end of all offsets. Returns 0,
 * or an errno value: EAGAIN when somebody else has it. Never waits. */
int lockfile_lock(const struct lockfile *file, int type, int64_t start, int64_t length);
/* Does anybody else have a lock in [start, start+length) that would conflict with an exclusive one?
 * If so its start. */
bool lockfile_locked(const struct lockfile *file, int64_t start, int64_t length,
                     int64_t *ret_start);
/* The same for whom "nobody" must be certain: 1, 0, or a negative errno: the kernel does not say. */
int lockfile_find_lock(const struct lockfile *file, int64_t start, int64_t length,
                       int64_t *ret_start);
/* Calls fn for the start of every lock of others in the range, in no order, until fn returns false. 0, or
 * an errno: EOVERFLOW if there were more than `limit`; any other: there may be more. */
int lockfile_each_lock(const struct lockfile *file, int64_t start, int64_t length, int limit,
                       bool (*fn)(void *context, int64_t at), void *context);

/* Records. index 0 is the exclusive holder's. */
int lockfile_write_record(const struct lockfile *file, uint32_t index, struct lock_record *record);

#endif
