/* Waiting for a lock, but not for ever. */
#include "example.h"

int main(int argc, char **argv)
{
    hf_store *store = example_store(argc, argv);
    hf_options options = HF_OPTIONS_INIT;
    hf_lock *mine, *second;
    int result;

    MUST(hf_acquire(store, "example/timed", NULL, &mine));

    options.wait_ms = 200;
    result = hf_acquire(store, "example/timed", &options, &second);
    switch (result) {
    case HF_EBUSY: /* not ours, and nothing of us is left in a queue */
        printf("not within 200 ms: %s\n", hf_error());
        break;
    case HF_EUNKNOWN: /* a server fell silent: what it perhaps gave ends by itself. Not on files */
    default:
        MUST(result);
        EXPECT(result != HF_OK); /* it was taken */
    }
    MUST(hf_release(mine));
    hf_close(store);
    return 0;
}
