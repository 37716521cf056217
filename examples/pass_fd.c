/* Handing a lock to a child: it is held until the child, too, is gone. And what a child may not do. */
#include "example.h"

#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    hf_store *store = example_store(argc, argv);
    hf_lock *lock, *next;
    int fd, status;
    pid_t child;

    MUST(hf_acquire(store, "example/pass_fd", NULL, &lock));
    MUST(hf_lock_pass_fd(lock, &fd)); /* survives exec */
    fflush(NULL);
    child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        hf_lock *mine;

        /* Our store and our locks stay the parent's. */
        if (hf_try(store, "example/other", NULL, &mine) != HF_EFORK)
            _exit(1);
        execlp("sleep", "sleep", "0.3", (char *)NULL);
        _exit(127);
    }
    close(fd); /* the child has its own copy */
    MUST(hf_release(lock));

    EXPECT(hf_try(store, "example/pass_fd", NULL, &next) == HF_EBUSY);
    printf("released by us, still held by the child\n");
    MUST(hf_acquire(store, "example/pass_fd", NULL, &next));
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    printf("the child is gone, and so is its hold\n");
    MUST(hf_release(next));
    hf_close(store);
    return 0;
}
