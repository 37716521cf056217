/* A fence, from the lock to the write: the resource is a file that keeps no marks, so a fence keeps them for it.
 * Whoever wants to change the balance enters first, then reads, then writes, then leaves.
 *
 *     fence STORE [FENCE]      FENCE: a directory; example-fence by default */
#include "example.h"

#include <holdfast/guard.h>
#include <inttypes.h>

#define KEY "account:7"
#define PATIENCE_MS 5000

static const char balance_file[] = "example-balance";

static long read_balance(void)
{
    FILE *file = fopen(balance_file, "r");
    char line[32];

    EXPECT(file && fgets(line, sizeof line, file));
    fclose(file);
    return strtol(line, NULL, 10);
}

static void write_balance(long balance)
{
    FILE *file = fopen(balance_file, "w");

    EXPECT(file && fprintf(file, "%ld\n", balance) > 0 && fclose(file) == 0);
}

/* Adds to the balance, as the holder of this token. Returns 0, or -1 if somebody has entered with a newer one. */
static int deposit(hf_fence *fence, uint64_t token, long amount)
{
    hf_fence_entry *entry;
    uint64_t mark;
    int result = hf_fence_begin(fence, KEY, token, HF_NOT_OLDER, PATIENCE_MS, &entry, &mark);

    if (result == HF_ESTALE) {
        printf("refused %ld: token %" PRIu64 " is older than %" PRIu64 "\n", amount, token, mark);
        return -1;
    }
    MUST(result);
    /* Nobody else is in here until hf_fence_end, or until this process is dead. */
    write_balance(read_balance() + amount);
    hf_fence_end(entry);
    printf("added %ld with token %" PRIu64 "\n", amount, token);
    return 0;
}

int main(int argc, char **argv)
{
    hf_store *store = example_store(argc, argv);
    hf_fence *fence;
    hf_lock *paused, *next;
    char sequencer[HF_SEQUENCER_MAX];
    uint64_t late, token;

    MUST(hf_fence_open(argc > 2 ? argv[2] : "example-fence", NULL, &fence));
    write_balance(100);
    MUST(hf_acquire(store, "example/" KEY, NULL, &paused));
    late = hf_lock_token(paused);
    EXPECT(deposit(fence, late, 10) == 0);

    /* The first holder sleeps through the end of its hold (here: an operator breaks it, without a grace: it is the fence that
     * protects. With one, a store with a TTL would withhold the name until that is over) ... */
    MUST(hf_break(store, "example/" KEY, 0, NULL));
    MUST(hf_acquire(store, "example/" KEY, NULL, &next));
    /* ... and the second sends its token to whoever keeps the account, as part of a sequencer ... */
    MUST(hf_lock_sequencer(next, sequencer, sizeof sequencer));
    MUST(hf_guard_token(sequencer, &token));
    EXPECT(deposit(fence, token, 20) == 0);

    /* ... when the first wakes up in the belief that it still holds the lock. */
    EXPECT(deposit(fence, late, 1000) == -1);
    EXPECT(read_balance() == 130);

    hf_release(paused);
    MUST(hf_release(next));
    hf_fence_close(fence);
    hf_close(store);
    remove(balance_file);
    return 0;
}
