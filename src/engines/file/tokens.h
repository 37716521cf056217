/* tokens.h: the one counter of a directory, shared by all processes, that never goes back.
 *
 * The file DIR/holdfast-state has three pages:
 *
 *   page 0   mapped by everybody, true during one boot only
 *            0   8  "HFTOKEN1"
 *            8  40  boot id of the boot in which the next two count, as text; zeros: none yet
 *           48   8  last: the newest token drawn
 *           56   8  ceiling: tokens up to this one may be given away
 *           64   8  trail: a token that was given away, one of the newest; never above `last`
 *   page 1   a durable slot
 *   page 2   the other durable slot
 *            0   8  "HFSLOT01"
 *            8   8  generation, the larger valid one counts
 *           16   8  ceiling
 *           24  40  store id, as text
 *           64   8  hash_bytes of the 64 bytes before
 *
 * Numbers are in the machine's own byte order: the file never leaves the machine.
 *
 *  [T1] A token is given away only if it is at most a ceiling that a synced slot holds.
 *  [T2] A slot is overwritten only when the other one, newer, is known to be synced. So at any
 *       crash at least one slot is whole, and its ceiling is at least every token ever given away.
 *  [T3] Under another boot id page 0 is not believed: counting resumes at the ceiling of the slots, or
 *       above it.
 *  [T4] Before the first token of a boot is given away, the directory entry is synced too.
 *  [T5] Page 0 has no checksum: it changes with every draw. A counter below its trail, or a ceiling above
 *       that of the slots, was damaged. Who opens the file sees that, and goes on as in another boot.
 *
 * Drawing costs one atomic addition; one draw in TOKENS_STEP also costs a sync. That one comes ahead of need:
 * whoever finds half of the step used up raises the ceiling, if nobody is at it, and the others draw on
 * below the old one. Only where there is nothing left, and at the first draw of a boot, is anybody waited for:
 * by asking again and again, until a deadline, because whoever has the lock may be a process that is stopped.
 */
#ifndef ENGINES_FILE_TOKENS_H
#define ENGINES_FILE_TOKENS_H

#include "base/bootclock.h"
#include "base/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* How far the ceiling is raised at once: what one sync buys. A reboot may waste half as much again. */
#define TOKENS_STEP UINT64_C(65536)
#define TOKENS_AHEAD (TOKENS_STEP / 2) /* so many below the ceiling, it is raised */
#define TOKENS_AHEAD_EVERY \
    UINT64_C(64) /* draws: while somebody else is at it, so often is he asked */
#define TOKENS_PAGE 4096
#define TOKENS_FILE_SIZE (3 * TOKENS_PAGE)
#define TOKENS_BOOT_ID_SIZE BOOT_ID_SIZE
#define TOKENS_STORE_ID_SIZE 40

/* What tokens.c needs of a disk. The real one is in file.c; tests bring one that crashes. Functions
 * return 0 or an errno value. */
struct tokens_disk {
    void *context;
    int (*read)(void *context, void *bytes, size_t size, off_t offset);
    int (*write)(void *context, const void *bytes, size_t size, off_t offset);
    int (*sync)(void *context);           /* the file's data */
    int (*sync_directory)(void *context); /* that it exists at all */
    int (*lock)(
        void *context); /* against all other processes and threads; EAGAIN if taken, never waits */
    void (*unlock)(void *context);
    const char *path; /* for words; borrowed, or NULL */
};

struct tokens_page; /* page 0 */

struct tokens {
    struct tokens_disk disk;
    struct tokens_page *page; /* page 0, mapped and shared */
    char boot_id[TOKENS_BOOT_ID_SIZE];
    _Atomic bool is_checked; /* [T5] */
};

/* The bytes of a new file. store_id is 1 to 39 printable characters. Its tokens begin above `first`. */
void tokens_format(const char *store_id, uint64_t first, unsigned char ret_file[TOKENS_FILE_SIZE]);
/* boot_id: as the kernel tells it, 1 to 39 bytes. page and disk must outlive the struct. */
void tokens_init(struct tokens *tokens, const struct tokens_disk *disk, void *page,
                 const char *boot_id);
/* A token greater than every one drawn before from this file. Errors are in words about "the token
 * file"; nothing is given away then. HF_EUNREACH: until the deadline somebody else had the lock. */
int tokens_draw(struct tokens *tokens, int64_t deadline_ms, uint64_t *ret_token,
                struct error_text *err);
/* All later tokens will be greater than `token`. */
int tokens_raise(struct tokens *tokens, uint64_t token, int64_t deadline_ms,
                 struct error_text *err);
/* The greatest that was drawn, or to which they were raised; after one of these two. */
uint64_t tokens_last(const struct tokens *tokens);
int tokens_store_id(struct tokens *tokens, char ret_id[TOKENS_STORE_ID_SIZE],
                    struct error_text *err);

#endif
