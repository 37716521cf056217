/* Taking a lock, looking at what one has, giving it back. */
#include "example.h"

#include <inttypes.h>

int main(int argc, char **argv)
{
    hf_store *store = example_store(argc, argv);
    char sequencer[HF_SEQUENCER_MAX];
    hf_lock *lock;

    MUST(hf_acquire(store, "example/acquire", NULL, &lock)); /* waits as long as it takes */

    printf("holding %s with token %" PRIu64 "\n", hf_lock_name(lock), hf_lock_token(lock));
    if (hf_lock_left_ms(lock) == HF_UNLIMITED)
        printf("this store has no TTL: the hold ends when it is released, or when we die\n");
    else
        printf("sure to last %" PRId64 " ms, and renewed meanwhile\n", hf_lock_left_ms(lock));

    /* Name and token as one string, for somebody else to check. */
    MUST(hf_lock_sequencer(lock, sequencer, sizeof sequencer));
    printf("sequencer: %s\n", sequencer);
    MUST(hf_check_sequencer(store, sequencer));
    MUST(hf_renew(lock)); /* the library does that by itself; this is for those who want to know */

    MUST(hf_release(lock));
    EXPECT(hf_check_sequencer(store, sequencer) == HF_ELOST);
    hf_close(store);
    return 0;
}
