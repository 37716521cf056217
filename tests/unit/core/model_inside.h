/* model_inside.h: what the two files of the model share. */
#ifndef TESTS_CORE_MODEL_INSIDE_H
#define TESTS_CORE_MODEL_INSIDE_H

#include "model.h"

/* NULL if there is none. */
struct model_lease *find_lease(const struct model *model, int who);
struct model_name *find_name(const struct model *model, int name);
struct model_claim *find_claim(const struct model *model, int name, int who);
bool is_kept(const struct model *model, int who);

void tell(struct model *model, struct model_event event);
void answer(struct model *model, uint32_t command, enum core_answer what, uint64_t number);

struct model_lease *make_lease(struct model *model, int who);
struct model_name *make_name(struct model *model, int name);
struct model_claim *make_claim(struct model *model, int name, int who);
/* Forgets the name and the lease if nobody uses them; either may be NOBODY. */
void tidy(struct model *model, int name, int who);
void set_record(struct model *model, int name, bool done, int result, uint64_t token,
                int64_t deadline_ms);
void forget_record(struct model *model, int name);

/* As far as those who hold it are concerned. */
bool admits(const struct model *model, int name, int mode);
/* Nobody's connection keeps it from now on: the lease's time begins, if this was the last. */
void unkeep(struct model *model, struct model_claim *claim);
void grant(struct model *model, struct model_claim *claim);

/* All of these may grant to others, and forget the name. */
void end_hold(struct model *model, struct model_claim *claim, enum core_why why);
void end_place(struct model *model, struct model_claim *claim, enum core_why why);
/* Ends a lease and all it has, and remembers it so long (negative: forgets it). withhold: its names, until it would have run
 * out. How much it had. */
uint32_t end_lease(struct model *model, int who, enum core_why why, bool withhold,
                   int64_t remember_ms);
void end_what_is_due(struct model *model);

#endif
