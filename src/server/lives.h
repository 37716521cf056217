/* lives.h: the life of each other member, a random number drawn with its data directory. A node that comes back with another one
 * has lost its directory: it has forgotten which entries it acknowledged and whom it voted for. Counted again, it could help the
 * others to forget what the cluster has acknowledged.
 *
 * An id is used once (cluster.c), so its life never changes. The log says it, to whoever has applied it. A node that has just
 * been restarted has not: so each keeps a file of its own, durable before anything is taken from the node that was met. What the
 * log says is written there, too. */
#ifndef SERVER_LIVES_H
#define SERVER_LIVES_H

#include "base/error.h"
#include "core/core.h"

#include <stdbool.h>

#define LIVES_MAX 48u
#define LIFE_MAX 32 /* characters */

struct storage;

struct lives {
    unsigned count;
    struct life {
        uint64_t id;
        char text[LIFE_MAX + 1];
    } at[LIVES_MAX];
};

/* HF_EIO: the file cannot be read, or is not what it should be. */
int lives_load(struct lives *lives, const struct storage *storage, struct error_text *err);
/* "" if it is not known. */
struct core_text lives_find(const struct lives *lives, uint64_t id);
/* On failure nothing is changed. */
int lives_set(struct lives *lives, const struct storage *storage, uint64_t id,
              struct core_text life, struct error_text *err);
/* These instead of all that were known. */
int lives_replace(struct lives *lives, const struct storage *storage, const struct lives *by,
                  struct error_text *err);
/* Keeps those for which `keep` is true. */
int lives_tidy(struct lives *lives, const struct storage *storage,
               bool (*keep)(void *context, uint64_t id), void *context, struct error_text *err);

#endif
