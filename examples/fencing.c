/* Fencing: the resource refuses whoever comes late. Here the resource is a file, and its guard keeps the highest
 * token it has seen in the file's first line. Checking and writing are one step, under the file's own lock. */
#include "example.h"

#include <inttypes.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* Writes if the token is not older than the newest seen. Returns 0, or -1 if it is stale. */
static int guarded_write(int fd, uint64_t token, const char *text)
{
    char page[256] = "";
    uint64_t highest;
    int length;

    EXPECT(flock(fd, LOCK_EX) == 0);
    EXPECT(pread(fd, page, sizeof page - 1, 0) >= 0);
    highest = strtoull(page, NULL, 10);
    if (token < highest) {
        printf("refused \"%s\": token %" PRIu64 " is older than %" PRIu64 "\n", text, token,
               highest);
        EXPECT(flock(fd, LOCK_UN) == 0);
        return -1;
    }
    length = snprintf(page, sizeof page, "%" PRIu64 "\n%s\n", token, text);
    EXPECT(ftruncate(fd, 0) == 0 && pwrite(fd, page, (size_t)length, 0) == length);
    EXPECT(fdatasync(fd) == 0); /* the mark must not be forgotten */
    printf("accepted \"%s\" with token %" PRIu64 "\n", text, token);
    EXPECT(flock(fd, LOCK_UN) == 0);
    return 0;
}

int main(int argc, char **argv)
{
    hf_store *store = example_store(argc, argv);
    char path[] = "example-fencing-XXXXXX";
    int resource = mkstemp(path);
    hf_lock *paused, *next;
    uint64_t late;

    EXPECT(resource >= 0 && unlink(path) == 0);
    MUST(hf_acquire(store, "example/fencing", NULL, &paused));
    late = hf_lock_token(paused);
    EXPECT(guarded_write(resource, late, "from the first") == 0);

    /* The first holder sleeps through the end of its hold (here: an operator breaks it) ... */
    MUST(hf_break(store, "example/fencing", 100, NULL));
    MUST(hf_acquire(store, "example/fencing", NULL, &next));
    EXPECT(guarded_write(resource, hf_lock_token(next), "from the second") == 0);

    /* ... and wakes up in the belief that it still holds the lock. */
    EXPECT(guarded_write(resource, late, "from the first, late") == -1);

    hf_release(paused);
    MUST(hf_release(next));
    hf_close(store);
    close(resource);
    return 0;
}
