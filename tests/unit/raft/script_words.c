/* script_words.c: the words of a line. */
#include "script_inside.h"

#include "base/text.h"

#include <string.h>

void player_wrong(struct player *player, const char *what, const char *word)
{
    if (!player->wrong[0])
        snprintf(player->wrong, SCRIPT_WRONG_MAX, "line %d: %s: %s", player->line, what,
                 word ? word : "the line ends");
}

bool player_more(const struct player *player)
{
    return player->at < player->count && !player->wrong[0];
}

const char *player_word(struct player *player)
{
    if (!player_more(player)) {
        player_wrong(player, "a word is missing", NULL);
        return "";
    }
    return player->word[player->at++];
}

bool player_word_is(struct player *player, const char *expected)
{
    if (!player_more(player) || strcmp(player->word[player->at], expected) != 0)
        return false;
    player->at++;
    return true;
}

uint64_t player_number(struct player *player)
{
    const char *word = player_word(player);
    uint64_t value = 0;

    if (!text_to_u64(word, UINT64_MAX, &value))
        player_wrong(player, "not a number", word);
    return value;
}

bool player_number_is_next(const struct player *player)
{
    return player_more(player) && player->word[player->at][0] >= '0' &&
           player->word[player->at][0] <= '9';
}

uint64_t player_optional(struct player *player, const char *word, uint64_t otherwise)
{
    return player_word_is(player, word) ? player_number(player) : otherwise;
}

bool player_letter_is_next(const struct player *player)
{
    const char *word = player_more(player) ? player->word[player->at] : "";

    return word[0] >= 'A' && word[0] < 'A' + CLUSTER_NODES && word[1] == '\0';
}

uint64_t player_letter(struct player *player)
{
    if (!player_letter_is_next(player)) {
        player_wrong(player, "not a node", player_more(player) ? player->word[player->at] : NULL);
        return 1;
    }
    return (uint64_t)(player->word[player->at++][0] - 'A') + 1;
}

/* Never NULL: a wrong script goes on with some node to the end of the line. */
struct cluster_node *player_node(struct player *player)
{
    struct cluster_node *found = cluster_node(player->cluster, player_letter(player));

    if (!found)
        player_wrong(player, "there is no such node",
                     player->word[player->at ? player->at - 1 : 0]);
    return found ? found : &player->cluster->nodes[0];
}

struct cluster_node *player_node_up(struct player *player)
{
    struct cluster_node *found = player_node(player);

    if (!found->up)
        player_wrong(player, "it is down", player->word[player->at - 1]);
    return found;
}
