/* lives.h: which life each of the other members has (founding.h). One that comes with another has lost its
 * directory: it has forgotten which entries it acknowledged and whom it voted for. Counted again, it could help the
 * others to forget what the cluster has acknowledged.
 *
 * The log says it, to whoever has applied it. A node that has just been restarted has not: its table is that of its snapshot, and
 * of any age. So each keeps a file of its own, durable before anything is taken from the node that was met, with the index
 * up to which the log was known then. What the log says above that index is newer, and is written down; what it says below, when
 * it is applied once more after a restart, is not. That a node was removed is written down, too, so that its id may be given to
 * another. Members tell each other what they have from the log: one that was away while another was replaced, or has yet to hear
 * the whole log, would not let that one in, and may have to hear of it from nobody else. */
#ifndef SERVER_LIVES_H
#define SERVER_LIVES_H

#include "base/error.h"
#include "core/core.h"

#include <stdbool.h>

#define LIVES_MAX 48u /* members, and some that were removed */
#define LIFE_MAX 32   /* characters */

struct storage;

struct lives {
    unsigned count;
    struct life {
        uint64_t id;
        char text[LIFE_MAX + 1]; /* "": it was removed */
        uint64_t index;          /* of the log; 0: it has said nothing yet */
        bool met;                /* the log has not said yet that it has this life */
    } at[LIVES_MAX];
};

/* HF_EIO: the file cannot be read, or is not what it should be. */
int lives_load(struct lives *lives, const struct storage *storage, struct error_text *err);
/* NULL: nothing is known of it. */
const struct life *lives_find(const struct lives *lives, uint64_t id);
/* "" if it is not known, or removed. */
struct core_text lives_text(const struct lives *lives, uint64_t id);
/* A node was met of whose life nothing was known. On failure nothing is changed. */
int lives_meet(struct lives *lives, const struct storage *storage, uint64_t id,
               struct core_text life, struct error_text *err);
/* With everything up to this index applied, the log says that it has this life; or, "", that it is no member. Believed if that is
 * newer. On failure nothing is changed. */
int lives_learn(struct lives *lives, const struct storage *storage, uint64_t id,
                struct core_text life, uint64_t index, struct error_text *err);
#define LIVES_TEXT_MAX (LIVES_MAX * (20 + 1 + LIFE_MAX + 1 + 20 + 1)) /* bytes: id/life/index, */
/* What the log has said, for other members: "2/91f0c4a7e2d35b68/4711,3/-/12". */
void lives_tell(const struct lives *lives, char ret_text[LIVES_TEXT_MAX + 1]);
/* What another has told, of all but this id. What is no such text is ignored. */
int lives_told(struct lives *lives, const struct storage *storage, uint64_t but, const char *text,
               struct error_text *err);
/* These instead of all that were known. */
int lives_replace(struct lives *lives, const struct storage *storage, const struct lives *by,
                  struct error_text *err);

#endif
