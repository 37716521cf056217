/* Ending a wait from another thread. */
#include "example.h"

#include <pthread.h>
#include <unistd.h>

static void *change_of_mind(void *cancel)
{
    usleep(100 * 1000);
    hf_cancel_fire(cancel);
    return NULL;
}

int main(int argc, char **argv)
{
    hf_store *store = example_store(argc, argv);
    hf_options options = HF_OPTIONS_INIT;
    hf_lock *mine, *second;
    hf_cancel *cancel;
    pthread_t thread;

    MUST(hf_acquire(store, "example/cancel", NULL, &mine));
    MUST(hf_cancel_new(&cancel));
    EXPECT(pthread_create(&thread, NULL, change_of_mind, cancel) == 0);

    options.cancel = cancel; /* one cancel may serve many waits */
    EXPECT(hf_acquire(store, "example/cancel", &options, &second) == HF_ECANCELED);
    printf("the wait was cancelled, and left nothing behind\n");

    EXPECT(pthread_join(thread, NULL) == 0);
    hf_cancel_free(cancel);
    MUST(hf_release(mine));
    hf_close(store);
    return 0;
}
