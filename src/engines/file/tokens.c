#include "engines/file/tokens.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/switches.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

struct tokens_page {
    char magic[8];
    /* Read and written as words: another process may be publishing it while we look. */
    _Atomic uint64_t boot_id[TOKENS_BOOT_ID_SIZE / 8];
    _Atomic uint64_t last;
    _Atomic uint64_t ceiling;
    _Atomic uint64_t trail;
};

struct slot {
    char magic[8];
    uint64_t generation;
    uint64_t ceiling;
    char store_id[TOKENS_STORE_ID_SIZE];
    uint64_t check;
};

_Static_assert(offsetof(struct tokens_page, last) == 48, "the format of the token file");
_Static_assert(offsetof(struct slot, check) == 64, "the format of the token file");

static const char page_magic[8] = {'H', 'F', 'T', 'O', 'K', 'E', 'N', '1'};
static const char slot_magic[8] = {'H', 'F', 'S', 'L', 'O', 'T', '0', '1'};

static void slot_seal(struct slot *slot)
{
    memcpy(slot->magic, slot_magic, sizeof slot->magic);
    slot->check = hash_bytes(slot, offsetof(struct slot, check));
}

static bool slot_is_whole(const struct slot *slot)
{
    return memcmp(slot->magic, slot_magic, sizeof slot_magic) == 0 &&
           slot->check == hash_bytes(slot, offsetof(struct slot, check)) &&
           slot->ceiling <= HF_TOKEN_MAX && memchr(slot->store_id, '\0', TOKENS_STORE_ID_SIZE);
}

/* The ceiling is what a boot resumes at, also the first one. */
void tokens_format(const char *store_id, uint64_t first, unsigned char ret_file[TOKENS_FILE_SIZE])
{
    struct slot slot = {.generation = 1, .ceiling = first};

    memset(ret_file, 0, TOKENS_FILE_SIZE);
    memcpy(ret_file, page_magic, sizeof page_magic);
    memcpy(slot.store_id, store_id, strnlen(store_id, TOKENS_STORE_ID_SIZE - 1));
    slot_seal(&slot);
    memcpy(ret_file + TOKENS_PAGE, &slot, sizeof slot);
}

void tokens_init(struct tokens *tokens, const struct tokens_disk *disk, void *page,
                 const char *boot_id)
{
    tokens->disk = *disk;
    tokens->page = page;
    tokens->is_checked = false;
    memset(tokens->boot_id, 0, sizeof tokens->boot_id);
    memcpy(tokens->boot_id, boot_id, strnlen(boot_id, TOKENS_BOOT_ID_SIZE - 1));
}

static int failed(int errno_value, const char *doing, struct error_text *err)
{
    if (errno_value == ENOSPC || errno_value == EDQUOT)
        return error_set(err, HF_EIO, "cannot %s the token file: the disk is full", doing);
    if (errno_value == EFBIG)
        return error_set(err, HF_EIO,
                         "cannot %s the token file: the file size limit of this process is in the "
                         "way (ulimit -f)",
                         doing);
    if (errno_value == EROFS || errno_value == EACCES || errno_value == EBADF)
        return error_set(err, HF_EREFUSED, "cannot %s the token file: it is read-only", doing);
    return error_set_errno(err, HF_EIO, errno_value, "cannot %s the token file", doing);
}

/* The slot that counts, and where the next one goes. */
static int newest_slot(struct tokens *tokens, struct slot *ret_slot, off_t *ret_spare_offset,
                       struct error_text *err)
{
    struct slot slots[2];
    bool whole[2];
    int newest;

    for (int i = 0; i < 2; i++) {
        int failure = tokens->disk.read(tokens->disk.context, &slots[i], sizeof slots[i],
                                        (off_t)(i + 1) * TOKENS_PAGE);

        if (failure)
            return failed(failure, "read", err);
        whole[i] = slot_is_whole(&slots[i]);
    }
    if (!whole[0] && !whole[1])
        return error_set(
            err, HF_EIO,
            "%s is damaged, and nobody can tell how far it had counted: see 'a damaged token file' "
            "in docs/file-store.md",
            tokens->disk.path ? tokens->disk.path : "the token file");
    newest = !whole[0] || (whole[1] && slots[1].generation > slots[0].generation);
    *ret_slot = slots[newest];
    *ret_spare_offset = (off_t)(newest == 0 ? 2 : 1) * TOKENS_PAGE;
    return HF_OK;
}

/* Makes a ceiling of at least `token` durable. Called with the lock held. */
static int raise_ceiling(struct tokens *tokens, uint64_t token, struct slot *ret_slot,
                         struct error_text *err)
{
    off_t spare = 0;
    int failure, result = newest_slot(tokens, ret_slot, &spare, err);

    if (result != HF_OK)
        return result;
    if (token < ret_slot->ceiling)
        token = ret_slot->ceiling;
    if (token > HF_TOKEN_MAX - TOKENS_STEP)
        return error_set(err, HF_EREFUSED, "this store has no tokens left below 2^53");
    /* [T2] Whoever wrote the newest slot may have died before syncing it. */
    failure = tokens->disk.sync(tokens->disk.context);
    if (failure)
        return failed(failure, "sync", err);
    ret_slot->generation++;
    ret_slot->ceiling = token + TOKENS_STEP;
    slot_seal(ret_slot);
    if (SWITCHED(SWITCH_CEILING_EARLY))
        atomic_store(&tokens->page->ceiling, ret_slot->ceiling);
    failure = tokens->disk.write(tokens->disk.context, ret_slot, sizeof *ret_slot, spare);
    if (failure)
        return failed(failure, "write", err);
    failure = SWITCHED(SWITCH_CEILING_NOT_SYNCED) ? 0 : tokens->disk.sync(tokens->disk.context);
    if (failure)
        return failed(failure, "sync", err);
    return HF_OK;
}

static bool counts_this_boot(struct tokens *tokens)
{
    struct tokens_page *page = tokens->page;
    uint64_t words[TOKENS_BOOT_ID_SIZE / 8];

    for (size_t i = 0; i < TOKENS_BOOT_ID_SIZE / 8; i++)
        words[i] = atomic_load_explicit(&page->boot_id[i], memory_order_acquire);
    return memcmp(words, tokens->boot_id, sizeof words) == 0;
}

static void raise_last(struct tokens_page *page, uint64_t token)
{
    uint64_t last = atomic_load(&page->last);

    while (last < token && !atomic_compare_exchange_weak(&page->last, &last, token))
        ;
}

/* [T5] Never above `last`: it is stored when that has been raised. */
static void leave_trail(struct tokens_page *page, uint64_t token)
{
    atomic_store_explicit(&page->trail, token, memory_order_release);
}

/* [T5] Once for each handle: what is mapped may have been read from a disk that has changed it. What was stored first is looked
 * at last. */
static int doubt_page(struct tokens *tokens, struct error_text *err)
{
    struct tokens_page *page = tokens->page;
    uint64_t ceiling = atomic_load(&page->ceiling), trail = atomic_load(&page->trail);
    uint64_t last = atomic_load(&page->last);
    struct slot slot = {.generation = 0};
    off_t spare = 0;
    int result = newest_slot(tokens, &slot, &spare, err);

    if (result != HF_OK)
        return result;
    if ((last < trail || ceiling > slot.ceiling) && !SWITCHED(SWITCH_PAGE_BELIEVED))
        atomic_store(&page->boot_id[0], 0); /* then it is as in another boot */
    tokens->is_checked = true;
    return HF_OK;
}

/* [T3] The first draw of a boot: page 0 is whatever the last boot happened to write back. Its
 * `last` can only be too low, so it is raised, never set: some container managers invent a boot id
 * per container, and then another "boot" may be drawing from this very page. */
static int begin_boot(struct tokens *tokens, struct error_text *err)
{
    struct tokens_page *page = tokens->page;
    uint64_t words[TOKENS_BOOT_ID_SIZE / 8], resume_at;
    struct slot slot = {.generation = 0};
    off_t spare = 0;
    int failure, result;

    result = newest_slot(tokens, &slot, &spare, err);
    if (result != HF_OK)
        return result;
    resume_at = atomic_load(&page->last);
    if (resume_at < slot.ceiling && !SWITCHED(SWITCH_BOOT_REPEATS))
        resume_at = slot.ceiling;
    result = raise_ceiling(tokens, resume_at, &slot, err);
    if (result != HF_OK)
        return result;
    failure = tokens->disk.sync_directory(tokens->disk.context); /* [T4] */
    if (failure)
        return failed(failure, "sync the directory of", err);
    raise_last(page, resume_at);
    leave_trail(page, resume_at);
    atomic_store(&page->ceiling, slot.ceiling);
    memcpy(words, tokens->boot_id, sizeof words);
    /* Published from the last word to the first: the boot id is whole only when all of it is there,
     * and the fields above were stored before any of it. */
    for (size_t i = TOKENS_BOOT_ID_SIZE / 8; i-- > 0;)
        atomic_store_explicit(&page->boot_id[i], words[i], memory_order_release);
    return HF_OK;
}

/* ---- the lock -------------------------------------------------------------------------------- */

#define PAUSE_MS_MAX 32

#define THE_BOOT 0 /* in the place of a token: that page 0 counts in this boot at all */

/* Is what the lock is wanted for no longer needed: has somebody else done it? */
static bool is_done(struct tokens *tokens, uint64_t token)
{
    if (token == THE_BOOT)
        return counts_this_boot(tokens);
    return token <= atomic_load_explicit(&tokens->page->ceiling, memory_order_acquire);
}

/* Locks, unless it turns out to be done: then *ret_done. Does not wait in the kernel, where nothing could
 * end it: who has the lock may be stopped for good. */
static int lock_unless_done(struct tokens *tokens, uint64_t token, int64_t deadline_ms,
                            bool *ret_done, struct error_text *err)
{
    long pause_ms = 1;

    for (;;) {
        int failure;

        *ret_done = is_done(tokens, token);
        if (*ret_done)
            return HF_OK;
        failure = tokens->disk.lock(tokens->disk.context);
        if (failure == 0)
            return HF_OK;
        if (failure != EAGAIN)
            return failed(failure, "lock", err);
        if (clock_boot_ms() >= deadline_ms)
            return error_set(err, HF_EUNREACH,
                             "another process is in the middle of raising the tokens of this "
                             "directory, and does not go on: is it stopped, or is the disk slow?");
        nanosleep(&(struct timespec){.tv_nsec = pause_ms * 1000000}, NULL);
        pause_ms = pause_ms < PAUSE_MS_MAX ? pause_ms * 2 : PAUSE_MS_MAX;
    }
}

/* With the lock. [T1] The page shows a ceiling only when it is synced. */
static int raise_and_publish(struct tokens *tokens, uint64_t token, struct error_text *err)
{
    struct slot slot = {.generation = 0};
    int result = raise_ceiling(tokens, token, &slot, err);

    if (result == HF_OK)
        atomic_store_explicit(&tokens->page->ceiling, slot.ceiling, memory_order_release);
    return result;
}

/* [T1] Returns when `token` is at most a synced ceiling. */
static int ensure(struct tokens *tokens, uint64_t token, int64_t deadline_ms,
                  struct error_text *err)
{
    bool done;
    int result = lock_unless_done(tokens, token, deadline_ms, &done, err);

    if (result != HF_OK || done)
        return result;
    if (!is_done(tokens, token))
        result =
            token == THE_BOOT ? begin_boot(tokens, err) : raise_and_publish(tokens, token, err);
    tokens->disk.unlock(tokens->disk.context);
    return result;
}

/* The page counts. */
static int ensure_boot(struct tokens *tokens, int64_t deadline_ms, struct error_text *err)
{
    int result = tokens->is_checked ? HF_OK : doubt_page(tokens, err);

    return result == HF_OK ? ensure(tokens, THE_BOOT, deadline_ms, err) : result;
}

/* `token` is ours already. If few are left below the ceiling, and nobody is raising it, we do, so that those who
 * come after us need not wait for anybody. Failing is no matter: whoever needs it will hear of it. */
static void raise_ahead(struct tokens *tokens, uint64_t token)
{
    struct tokens_page *page = tokens->page;

    if (token + TOKENS_AHEAD <= atomic_load_explicit(&page->ceiling, memory_order_acquire) ||
        token % TOKENS_AHEAD_EVERY != 0 || tokens->disk.lock(tokens->disk.context) != 0)
        return;
    if (token + TOKENS_AHEAD > atomic_load(&page->ceiling))
        raise_and_publish(tokens, token, NULL);
    tokens->disk.unlock(tokens->disk.context);
}

int tokens_draw(struct tokens *tokens, int64_t deadline_ms, uint64_t *ret_token,
                struct error_text *err)
{
    int result = ensure_boot(tokens, deadline_ms, err);
    uint64_t token;

    if (result != HF_OK)
        return result;
    token = atomic_fetch_add(&tokens->page->last, 1) + 1;
    if (token == 0 || token > HF_TOKEN_MAX)
        return error_set(err, HF_EREFUSED, "this store has no tokens left below 2^53");
    result = ensure(tokens, token, deadline_ms, err);
    if (result != HF_OK)
        return result;
    leave_trail(tokens->page, token);
    *ret_token = token;
    raise_ahead(tokens, token);
    return HF_OK;
}

int tokens_raise(struct tokens *tokens, uint64_t token, int64_t deadline_ms, struct error_text *err)
{
    int result = ensure_boot(tokens, deadline_ms, err);

    if (result == HF_OK && token != THE_BOOT && token > HF_TOKEN_MAX - TOKENS_STEP)
        return error_set(err, HF_EREFUSED,
                         "so high a floor leaves this store no tokens: the highest is %llu",
                         (unsigned long long)(HF_TOKEN_MAX - TOKENS_STEP));
    if (result == HF_OK && token != THE_BOOT)
        result = ensure(tokens, token, deadline_ms, err);
    if (result == HF_OK) {
        raise_last(tokens->page, token);
        leave_trail(tokens->page, token);
    }
    return result;
}

uint64_t tokens_last(const struct tokens *tokens)
{
    return atomic_load(&tokens->page->last);
}

/* Without the lock: both slots carry the same id, and one of them is whole at any time. */
int tokens_store_id(struct tokens *tokens, char ret_id[TOKENS_STORE_ID_SIZE],
                    struct error_text *err)
{
    struct slot slot = {.generation = 0};
    off_t spare = 0;
    int result = newest_slot(tokens, &slot, &spare, err);

    if (result == HF_OK)
        memcpy(ret_id, slot.store_id, TOKENS_STORE_ID_SIZE);
    return result;
}
