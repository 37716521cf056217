/* hf_postgres.c: the program hf-postgres, one PostgreSQL server or one pgbouncer for tests that are not written in C.
 *
 *     hf-postgres server [ARG]...               with these arguments of postgres(1)
 *     hf-postgres fresh [ARG]...                the same with an initdb of its own
 *     hf-postgres replica PORT NAME [ARG]...    a streaming replica of the server on PORT, which knows it as NAME
 *     hf-postgres pgbouncer PORT [LINE]...      before the server on PORT, with these lines in its configuration
 *
 * It says "PORT DIRECTORY" when that serves. Then it obeys the lines of its input, and says "ok" or "error":
 *
 *     kill, start, restart, pause, resume, promote
 *
 * It ends, with all of it, with its input. */
#include "postgres.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct postgres server;
static struct pgbouncer bouncer;

static int obey(const char *word)
{
    if (strcmp(word, "kill") == 0)
        postgres_kill9(&server);
    else if (strcmp(word, "start") == 0 || strcmp(word, "restart") == 0)
        return postgres_restart(&server);
    else if (strcmp(word, "pause") == 0)
        return postgres_pause(&server);
    else if (strcmp(word, "resume") == 0)
        return postgres_resume(&server);
    else if (strcmp(word, "promote") == 0)
        return postgres_promote(&server);
    else
        return -1;
    return 0;
}

static int start(int argc, char **argv)
{
    const char *const *args = (const char *const *)(uintptr_t)argv;
    char lines[2048] = "";

    if (argc > 1 && strcmp(argv[1], "server") == 0)
        return postgres_start(&server, args + 2);
    if (argc > 1 && strcmp(argv[1], "fresh") == 0)
        return postgres_start_fresh(&server, args + 2);
    if (argc > 3 && strcmp(argv[1], "replica") == 0)
        return postgres_start_replica(&server, (int)strtol(argv[2], NULL, 10), argv[3], args + 4);
    if (argc <= 2 || strcmp(argv[1], "pgbouncer") != 0)
        return -1;
    for (int i = 3; i < argc; i++)
        snprintf(lines + strlen(lines), sizeof lines - strlen(lines), "%s\n", argv[i]);
    return pgbouncer_start(&bouncer, (int)strtol(argv[2], NULL, 10), lines);
}

int main(int argc, char **argv)
{
    char line[64];

    signal(SIGPIPE, SIG_IGN);
    if (start(argc, argv) < 0)
        return 1;
    printf("%d %s\n", server.port ? server.port : bouncer.port,
           server.port ? server.dir : bouncer.dir);
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        printf("%s\n", server.port && obey(line) == 0 ? "ok" : "error");
        fflush(stdout);
    }
    if (server.port)
        postgres_stop(&server);
    else
        pgbouncer_stop(&bouncer);
    return 0;
}
