/* In a program with an event loop: nothing blocks, and callbacks run on our own thread, in hf_dispatch. */
#include "example.h"

#include <inttypes.h>
#include <poll.h>

struct program {
    hf_lock *lock;
    int finished;
};

static void released(hf_op *op, int result, void *arg)
{
    struct program *program = arg;

    (void)op;
    EXPECT(result == HF_OK);
    printf("released\n");
    program->finished = 1;
}

static void acquired(hf_op *op, int result, void *arg)
{
    struct program *program = arg;
    hf_op *release;

    if (result != HF_OK) {
        fprintf(stderr, "not acquired: %s\n", hf_op_error(op));
        exit(1);
    }
    program->lock = hf_op_take_lock(op); /* left in the operation, it would be released */
    printf("acquired, token %" PRIu64 "\n", hf_lock_token(program->lock));
    MUST(hf_release_start(program->lock, released, program, &release));
}

int main(int argc, char **argv)
{
    hf_store *store = example_store(argc, argv);
    struct pollfd ready = {.fd = hf_fd(store), .events = POLLIN};
    struct program program = {0};
    hf_op *op;

    EXPECT(ready.fd >= 0);
    MUST(hf_acquire_start(store, "example/loop", NULL, acquired, &program, &op));
    while (!program.finished) {
        EXPECT(poll(&ready, 1, 5000) == 1); /* your descriptors stand beside this one */
        EXPECT(hf_dispatch(store) >= 0);
    }
    hf_close(store);
    return 0;
}
