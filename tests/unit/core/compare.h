/* compare.h: the lock table beside its model: do the same effects come out, and is there the same in it? For the random test and the
 * explorer. */
#ifndef TESTS_CORE_COMPARE_H
#define TESTS_CORE_COMPARE_H

#include "model.h"

#define WRONG_MAX 512 /* bytes of what is wrong, in words */

/* The model has numbers where the table has texts. The first byte of a text is its number above one of these. */
#define COMPARE_NAME_0 'a'
#define COMPARE_LEASE_0 'A'
struct compare_texts {
    struct core_text (*name_of)(int name);
    struct core_text (*lease_of)(int who);
};

/* The name of a user of the model. */
struct core_text compare_user(int user);

/* What came out of an entry. */
struct events {
    const struct compare_texts *texts;
    struct model_event event[MODEL_EVENTS];
    int count;
};

/* For a core_sink whose context is a struct events. */
void events_note(void *context, const struct core_effect *effect);

/* False: they differ, and ret_wrong says in what. */
bool compare_events(const struct model_event *expected, int count, const struct events *events,
                    char ret_wrong[WRONG_MAX]);
bool compare_table(const struct core *table, const struct model *model,
                   const struct compare_texts *texts, char ret_wrong[WRONG_MAX]);

#endif
