/* At most N at once: three downloads, the fourth has to wait. */
#include "example.h"

int main(int argc, char **argv)
{
    hf_store *store = example_store(argc, argv);
    hf_options options = HF_OPTIONS_INIT;
    hf_lock *downloads[3], *fourth;

    options.mode = HF_PERMIT;
    options.permits = 3; /* the same number for everybody who uses the name */
    for (int i = 0; i < 3; i++)
        MUST(hf_try(store, "example/permits", &options, &downloads[i]));
    EXPECT(hf_try(store, "example/permits", &options, &fourth) == HF_EBUSY);
    printf("three inside, the fourth is busy\n");

    MUST(hf_release(downloads[1]));
    MUST(hf_acquire(store, "example/permits", &options, &fourth));
    printf("one left, the fourth came in\n");

    MUST(hf_release(downloads[0]));
    MUST(hf_release(downloads[2]));
    MUST(hf_release(fourth));
    hf_close(store);
    return 0;
}
