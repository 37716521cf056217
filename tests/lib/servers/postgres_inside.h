/* postgres_inside.h: what postgres.c and pgbouncer.c share: the user they run as, programs, and directories with a database in them. */
#ifndef TESTS_SERVERS_POSTGRES_INSIDE_H
#define TESTS_SERVERS_POSTGRES_INSIDE_H

#include "inside.h"

#define PROGRAM_MAX 256

/* Who runs the servers: nobody else than we, unless we are root. */
struct server_user {
    bool other;
    uid_t uid;
    gid_t gid;
};

struct server_user postgres_user(void);
/* What a child does before its exec: it dies by this signal when its parent does, which a change of user would forget. */
void postgres_become_user(const struct server_user *user, int death_signal);
/* Where the newest of Debian's versions has it, or its name alone. */
void postgres_program(const char *name, char ret_path[PROGRAM_MAX]);
/* Runs it as that user, and until it has ended; what it prints, cut to fit. -1: it failed, or printed too much. */
int postgres_run(const char *const argv[], char *reply, size_t size);
/* A fresh directory that this user can enter, and has. */
int postgres_make_directory(const char *name, char ret_dir[SERVER_DIR_MAX]);
/* Each makes DIR/data. */
int postgres_initdb(const char *dir);
int postgres_copy_template(const char *dir);
int postgres_backup(const char *dir, int primary_port, const char *name);

#endif
