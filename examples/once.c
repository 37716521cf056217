/* Doing something once, however often it is asked for: a payment that its caller tries again. */
#include "example.h"

#include <holdfast/once.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

static int charges; /* what must happen once */

/* What a caller does, the first like any other. */
static void charge(hf_store *store, const char *key)
{
    char receipt[64];
    hf_once *once;
    size_t size;

    MUST(hf_once_begin(store, key, NULL, &once));
    if (!hf_once_runs(once)) {
        const char *result = hf_once_result(once, &size);

        printf("done before: %.*s\n", (int)size, result);
        hf_once_free(once);
        return;
    }
    /* Whatever is written to gets the token, and refuses an older one: see the fencing example. */
    charges++;
    snprintf(receipt, sizeof receipt, "receipt %d, token %" PRIu64, charges, hf_once_token(once));
    printf("charged: %s\n", receipt);
    MUST(hf_once_finish(once, receipt, strlen(receipt), 10000));
}

int main(int argc, char **argv)
{
    hf_store *store = example_store(argc, argv);
    char key[64];
    hf_once *once;

    snprintf(key, sizeof key, "example/charge:%ld", (long)getpid());
    charge(store, key);
    charge(store, key);
    charge(store, key);
    EXPECT(charges == 1);

    /* What is known of it, without asking to run it. */
    MUST(hf_once_read(store, key, &once));
    EXPECT(hf_once_state(once) == HF_ONCE_DONE);
    printf("known for another %" PRId64 " ms\n", hf_once_left_ms(once));
    hf_once_free(once);

    /* A run that came to nothing: the key is free again, and the next one runs. */
    snprintf(key, sizeof key, "example/fails:%ld", (long)getpid());
    MUST(hf_once_begin(store, key, NULL, &once));
    EXPECT(hf_once_runs(once));
    MUST(hf_once_release(once));
    charge(store, key);
    EXPECT(charges == 2);
    hf_close(store);
    return 0;
}
