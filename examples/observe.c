/* Being told of every change of holder. */
#include "example.h"

#include <inttypes.h>
#include <pthread.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static uint64_t seen = UINT64_MAX; /* the token of the holder we were told of; 0: nobody */

static void holder_changed(hf_observer *observer, const hf_report *now, void *arg)
{
    const hf_entry *holder = hf_report_entry(now, 0);

    (void)observer;
    (void)arg;
    pthread_mutex_lock(&mutex);
    seen = holder && holder->kind == HF_ENTRY_HOLDER ? holder->token : 0;
    if (seen)
        printf("now held by %s, token %" PRIu64 "\n", holder->owner, seen);
    else
        printf("now held by nobody\n");
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&mutex);
}

static void wait_until_seen(uint64_t token)
{
    pthread_mutex_lock(&mutex);
    while (seen != token)
        pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
}

int main(int argc, char **argv)
{
    hf_store *store = example_store(argc, argv);
    hf_options options = HF_OPTIONS_INIT;
    hf_observer *observer;
    hf_lock *lock;

    MUST(hf_observe(store, "example/observe", holder_changed, NULL, &observer));
    wait_until_seen(0);
    for (int i = 0; i < 2; i++) {
        options.owner = i == 0 ? "first" : "second";
        MUST(hf_acquire(store, "example/observe", &options, &lock));
        wait_until_seen(hf_lock_token(lock));
        MUST(hf_release(lock));
        wait_until_seen(0);
    }
    hf_observer_stop(observer);
    hf_close(store);
    return 0;
}
