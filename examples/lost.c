/* Hearing that a lock is over: by callback, by descriptor, and by asking. A hold can end without us when its
 * TTL runs out, when an operator breaks it, or, as here, when it reaches the maximum we gave it. */
#include "example.h"

#include <inttypes.h>
#include <poll.h>
#include <semaphore.h>

static void on_lost(hf_lock *lock, void *arg)
{
    (void)lock;
    sem_post(arg); /* on a thread of the library: take note, do little */
}

int main(int argc, char **argv)
{
    hf_store *store = example_store(argc, argv);
    hf_options options = HF_OPTIONS_INIT;
    struct pollfd lost = {.events = POLLIN};
    sem_t told;
    hf_lock *lock;

    options.max_hold_ms = 200;
    options.on_lost = on_lost;
    options.arg = &told;
    EXPECT(sem_init(&told, 0, 0) == 0);
    MUST(hf_acquire(store, "example/lost", &options, &lock));
    printf("held, for %" PRId64 " ms at most\n", hf_lock_left_ms(lock));

    lost.fd = hf_lock_lost_fd(lock);
    EXPECT(lost.fd >= 0);
    EXPECT(poll(&lost, 1, 5000) == 1);
    printf("told by descriptor\n");
    EXPECT(sem_wait(&told) == 0); /* before the release: with the lock, its callback goes */
    printf("told by callback\n");
    EXPECT(hf_lock_left_ms(lock) == 0);
    EXPECT(hf_renew(lock) == HF_ELOST);

    /* The lock is still ours to free, and says once more how it ended. */
    EXPECT(hf_release(lock) == HF_ELOST);
    hf_close(store);
    sem_destroy(&told);
    return 0;
}
