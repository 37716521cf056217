/* script_inside.h: what the files of the player share. */
#ifndef TESTS_RAFT_SCRIPT_INSIDE_H
#define TESTS_RAFT_SCRIPT_INSIDE_H

#include "script.h"

#define WORDS_MAX 40
#define COUNT(array) (sizeof(array) / sizeof *(array))

struct player {
    struct cluster *cluster;
    FILE *out;
    int line, count, at;
    char *word[WORDS_MAX];
    char *wrong; /* "": nothing */
};

/* ---- script_words.c */

void player_wrong(struct player *player, const char *what, const char *word);
bool player_more(const struct player *player);
const char *player_word(struct player *player);
bool player_word_is(struct player *player, const char *expected);
uint64_t player_number(struct player *player);
bool player_number_is_next(const struct player *player);
uint64_t player_optional(struct player *player, const char *word, uint64_t otherwise);
bool player_letter_is_next(const struct player *player);
uint64_t player_letter(struct player *player);
struct cluster_node *player_node(struct player *player);
struct cluster_node *player_node_up(struct player *player);

/* ---- script_steps.c */

struct script_step {
    const char *word;
    void (*play)(struct player *player);
};

extern const struct script_step script_steps[]; /* the first is how a script begins */
extern const size_t script_step_count;

#endif
