/* The operator's tools: breaking a hold, and raising the floor under the tokens. */
#include "example.h"

#include <inttypes.h>
#include <poll.h>

int main(int argc, char **argv)
{
    hf_store *store = example_store(argc, argv);
    struct pollfd lost = {.events = POLLIN};
    hf_lock *stuck, *next;
    uint32_t broken = 0;
    uint64_t token;

    MUST(hf_acquire(store, "example/operator", NULL, &stuck));
    token = hf_lock_token(stuck);

    /* The holder is told, and has 300 ms to let go before the name is given to others. */
    MUST(hf_break(store, "example/operator", 300, &broken));
    EXPECT(broken == 1);
    lost.fd = hf_lock_lost_fd(stuck);
    EXPECT(poll(&lost, 1, 5000) == 1);
    EXPECT(hf_check(store, "example/operator", token) == HF_ELOST);
    printf("broken: token %" PRIu64 " is worth nothing any more\n", token);

    /* Moving from another store whose newest token we know: ours must be greater from now on. */
    MUST(hf_floor(store, token + 1000));
    MUST(hf_acquire(store, "example/operator", NULL, &next));
    EXPECT(hf_lock_token(next) > token + 1000);
    printf("the next holder has token %" PRIu64 "\n", hf_lock_token(next));

    EXPECT(hf_release(stuck) == HF_ELOST);
    MUST(hf_release(next));
    hf_close(store);
    return 0;
}
