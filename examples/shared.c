/* Many readers or one writer. */
#include "example.h"

int main(int argc, char **argv)
{
    hf_store *store = example_store(argc, argv);
    hf_options reading = HF_OPTIONS_INIT;
    hf_lock *one, *two, *writer;

    reading.mode = HF_SHARED;
    MUST(hf_acquire(store, "example/shared", &reading, &one));
    MUST(hf_acquire(store, "example/shared", &reading, &two));
    printf("two readers at once\n");

    EXPECT(hf_try(store, "example/shared", NULL, &writer) == HF_EBUSY);
    printf("no writer beside them\n");

    MUST(hf_release(one));
    MUST(hf_release(two));
    MUST(hf_try(store, "example/shared", NULL, &writer));
    EXPECT(hf_try(store, "example/shared", &reading, &one) == HF_EBUSY);
    printf("then one writer, and no reader beside it\n");
    MUST(hf_release(writer));
    hf_close(store);
    return 0;
}
