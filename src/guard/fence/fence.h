/* fence.h: an open fence, for the files that carry out hf_fence_*. fence.c says how they belong
 * together. */
#ifndef GUARD_FENCE_FENCE_H
#define GUARD_FENCE_FENCE_H

#include "base/list.h"
#include "guard/fence/keys.h"
#include "guard/fence/marks.h"

#include <holdfast/guard.h>
#include <pthread.h>

struct hf_fence {
    struct list node;
    uint32_t generation;
    struct fence_directory directory;
    struct keys keys;
    const struct marks_provider *provider;
    struct marks *marks;

    pthread_mutex_t mutex; /* for entries, and their descriptors */
    struct list entries;
    int64_t patience_ms;
};

/* A place that is held: somebody inside a key, or writing. */
struct hf_fence_entry {
    struct list node;
    hf_fence *fence;
    int fd;
    int64_t place;
};

/* Opened before a fork, and we are the child. */
bool fence_forked(const hf_fence *fence);
/* Forgotten before it is closed: what is closed twice may be a stranger's the second time. */
void fence_drop_descriptor(int *fd);

#endif
