/* keys.c: one at a time inside a key.
 *
 *     keys       an empty file. Whoever is inside a key has a byte of it locked, far behind its end:
 *                an open-file-description lock, at the first 62 bits of the key's SHA-256
 *     waiting    1,024 bells of 4 bytes, mapped by all
 *
 * Such a lock belongs to one open file, not to a process: so threads exclude each other too, and it
 * ends when the file is closed, by the kernel if the process is killed. Two keys with the same 62 bits
 * would merely wait for each other.
 *
 * Waiting. The kernel's own waiting has no time limit, and signals are not ours to cut it short with.
 * So a waiter sleeps on a bell, a futex, that is chosen by the place, and whoever leaves rings it:
 *
 *     waiter   makes the bell odd (somebody listens), tries, sleeps while the bell is unchanged
 *     leaver   unlocks; if the bell is odd, makes it even again and wakes all who listen
 *
 * If the leaver saw the bell even, the waiter made it odd after the unlocking, and its try came later
 * still: so nobody sleeps through a leaving. A process that is killed rings nothing; therefore a waiter
 * also looks every RECHECK_MS. */
#include "guard/fence/keys.h"

#include "base/clock.h"
#include "base/futex.h"
#include "base/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BELLS 1024
#define BELLS_SIZE (BELLS * sizeof(_Atomic uint32_t))
#define PLACE_BITS 62
#define RECHECK_MS 50

int keys_open(struct keys *keys, const struct fence_directory *directory, struct error_text *err)
{
    int fd = -1, result = fence_directory_file(directory, "keys", 0, &fd, err);
    void *mapped;

    if (result != HF_OK)
        return result;
    close(fd);
    result = fence_directory_file(directory, "waiting", BELLS_SIZE, &fd, err);
    if (result != HF_OK)
        return result;
    mapped = mmap(NULL, BELLS_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) {
        result = fence_directory_explain(directory, errno, "map the file 'waiting'", err);
        close(fd);
        return result;
    }
    close(fd);
    keys->directory = directory;
    keys->bells = mapped;
    return HF_OK;
}

void keys_close(struct keys *keys)
{
    if (keys->bells)
        munmap((void *)keys->bells, BELLS_SIZE);
    keys->bells = NULL;
}

int64_t keys_place(const char *key, size_t size)
{
    unsigned char digest[SHA256_SIZE];
    uint64_t place = 0;

    sha256(key, size, digest);
    for (size_t i = 0; i < sizeof place; i++)
        place = place << 8 | digest[i];
    place >>= 64 - PLACE_BITS;
    return place == (uint64_t)PLACE_WRITER ? 1 : (int64_t)place;
}

int keys_descriptor(const struct keys *keys, struct error_text *err)
{
    int fd = openat(keys->directory->fd, "keys", O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);

    return fd >= 0 ? fd
                   : fence_directory_explain(keys->directory, errno, "open the file 'keys'", err);
}

static int lock(int fd, int type, int64_t place)
{
    struct flock range = {
        .l_type = (short)type, .l_whence = SEEK_SET, .l_start = place, .l_len = 1};

    return fcntl(fd, F_OFD_SETLK, &range) == 0 ? 0 : errno;
}

static bool is_taken(int failure)
{
    return failure == EAGAIN || failure == EACCES;
}

static _Atomic uint32_t *bell_of(const struct keys *keys, int64_t place)
{
    return &keys->bells[place % BELLS];
}

int keys_take(struct keys *keys, int fd, int64_t place, int64_t deadline_ms, struct error_text *err)
{
    _Atomic uint32_t *bell = bell_of(keys, place);
    int failure = lock(fd, F_WRLCK, place);

    while (is_taken(failure)) {
        uint32_t heard = atomic_fetch_or(bell, 1) | 1;
        int64_t now_ms, recheck_ms;

        failure = lock(fd, F_WRLCK, place);
        if (!is_taken(failure))
            break;
        now_ms = clock_boot_ms();
        if (now_ms >= deadline_ms)
            return HF_EBUSY;
        recheck_ms = clock_after(now_ms, RECHECK_MS);
        futex_wait(bell, heard, FUTEX_MASK_ALL,
                   recheck_ms < deadline_ms ? recheck_ms : deadline_ms);
    }
    return failure ? fence_directory_explain(keys->directory, failure, "lock a key", err) : HF_OK;
}

void keys_leave(struct keys *keys, int fd, int64_t place)
{
    _Atomic uint32_t *bell = bell_of(keys, place);
    uint32_t heard;

    lock(fd, F_UNLCK, place);
    heard = atomic_load(bell);
    if (!(heard & 1))
        return;
    /* If it has changed, somebody else has rung since the unlocking. */
    if (atomic_compare_exchange_strong(bell, &heard, heard + 1))
        futex_wake(bell, FUTEX_MASK_ALL, INT_MAX);
}
