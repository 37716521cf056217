/* Taking a lock only if it is free. */
#include "example.h"

int main(int argc, char **argv)
{
    hf_store *store = example_store(argc, argv);
    hf_lock *mine, *second;
    int result;

    MUST(hf_try(store, "example/try", NULL, &mine));

    /* Every acquisition stands for itself, also within one program: this one is not ours. */
    result = hf_try(store, "example/try", NULL, &second);
    EXPECT(result == HF_EBUSY);
    printf("second try: %s: %s\n", hf_result_name(result), hf_error());

    MUST(hf_release(mine));
    MUST(hf_try(store, "example/try", NULL, &second));
    printf("third try: held\n");
    MUST(hf_release(second));
    hf_close(store);
    return 0;
}
