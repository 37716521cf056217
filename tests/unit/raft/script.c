/* script.c: see script.h. */
#include "script_inside.h"

#include <stdlib.h>
#include <string.h>

#define LINE_MAX_BYTES 256

static void split(struct player *player, char *line)
{
    char *rest = line;

    player->count = player->at = 0;
    while (*(rest += strspn(rest, " "))) {
        if (player->count == WORDS_MAX) {
            player_wrong(player, "too many words", rest);
            return;
        }
        player->word[player->count++] = rest;
        rest += strcspn(rest, " ");
        if (*rest)
            *rest++ = '\0';
    }
}

static void play_line(struct player *player)
{
    size_t i = 0;

    while (i < script_step_count && !player_word_is(player, script_steps[i].word))
        i++;
    if (i == script_step_count)
        player_wrong(player, "not a step", player->word[0]);
    else if (player->cluster->node_count == 0 && i > 0)
        player_wrong(player, "a script begins with its cluster, not with", player->word[0]);
    else
        script_steps[i].play(player);
    if (player_more(player))
        player_wrong(player, "one word too many", player->word[player->at]);
    if (player->cluster->link_max > 0)
        cluster_forget(player->cluster);
    /* What ghosts say is recorded like everything else: no script should have it. */
    if (player->cluster->wrong[0])
        fprintf(player->out, "    WRONG: %s\n", player->cluster->wrong);
    player->cluster->wrong[0] = '\0';
}

char *script_play(const char *script, struct cluster *cluster, char ret_wrong[SCRIPT_WRONG_MAX])
{
    struct player player = {.cluster = cluster, .wrong = ret_wrong};
    char *played = NULL, line[LINE_MAX_BYTES];
    size_t size = 0;

    ret_wrong[0] = '\0';
    memset(cluster, 0, sizeof *cluster);
    player.out = open_memstream(&played, &size);
    for (const char *at = script; *at && !ret_wrong[0];
         at += strcspn(at, "\n"), at += *at == '\n') {
        size_t length = strcspn(at, "\n");

        player.line++;
        if (*at == ' ')
            continue;
        fprintf(player.out, "%.*s\n", (int)length, at);
        if (*at == '#' || length == 0)
            continue;
        if (length >= sizeof line) {
            player_wrong(&player, "too long", "this line");
            break;
        }
        memcpy(line, at, length);
        line[length] = '\0';
        split(&player, line);
        if (!ret_wrong[0])
            play_line(&player);
    }
    fclose(player.out);
    cluster->tell = NULL;
    if (!ret_wrong[0])
        return played;
    free(played);
    return NULL;
}
