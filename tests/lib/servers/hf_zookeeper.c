/* hf_zookeeper.c: the program hf-zookeeper, three ZooKeeper servers for tests that are not written in C.
 *
 *     hf-zookeeper [LINE]...   starts them, with these lines in their configuration; says "ports A B C" when they serve
 *
 * Then it obeys the lines of its input, and says "ok", an answer, or "error". N is 0, 1 or 2.
 *
 *     kill N, start N, pause N, resume N
 *     whole                    returns when all of them serve
 *     leader                   says which leads, or -1
 *
 * It ends, with all of them, with its input. */
#include "servers.h"
#include "zookeeper.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ensemble ensemble;

static int obey(const char *word, int number)
{
    struct zookeeper *node =
        number >= 0 && number < ZOOKEEPER_NODES ? &ensemble.nodes[number] : NULL;

    if (strcmp(word, "whole") == 0)
        return ensemble_await_whole(&ensemble);
    if (!node)
        return -1;
    if (strcmp(word, "kill") == 0) {
        zookeeper_kill9(node);
        return 0;
    }
    if (strcmp(word, "start") == 0)
        return zookeeper_begin_again(node);
    if (strcmp(word, "pause") == 0)
        return zookeeper_pause(node);
    return strcmp(word, "resume") == 0 ? zookeeper_resume(node) : -1;
}

int main(int argc, char **argv)
{
    char line[64], extra[1024] = "";

    for (int i = 1; i < argc; i++)
        snprintf(extra + strlen(extra), sizeof extra - strlen(extra), "%s\n", argv[i]);
    signal(SIGPIPE, SIG_IGN);
    if (ensemble_start_with(&ensemble, extra) < 0)
        return 1;
    printf("ports %d %d %d\n", ensemble.nodes[0].port, ensemble.nodes[1].port,
           ensemble.nodes[2].port);
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        char *number = strchr(line, ' ');

        line[strcspn(line, "\n")] = '\0';
        if (number)
            *number++ = '\0';
        if (strcmp(line, "leader") == 0)
            printf("%d\n", ensemble_leader(&ensemble));
        else
            printf("%s\n",
                   obey(line, number ? (int)strtol(number, NULL, 10) : -1) == 0 ? "ok" : "error");
        fflush(stdout);
    }
    ensemble_stop(&ensemble);
    return 0;
}
