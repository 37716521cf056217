/* suggest.h: what somebody meant who typed a word that there is not. */
#ifndef BASE_SUGGEST_H
#define BASE_SUGGEST_H

#include <stddef.h>

/* The candidate nearest to what was typed, or NULL when none is near enough to be meant. */
const char *suggest_nearest(const char *typed, const char *const *candidates, size_t count);

#endif
