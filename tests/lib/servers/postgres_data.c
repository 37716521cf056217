/* postgres_data.c: who runs PostgreSQL, where its programs are, and how its data are made. */
#include "postgres_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <grp.h>
#include <pthread.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEMPLATE "postgres-template"

/* ---- who, and with what ---------------------------------------------------------------------- */

static struct server_user found_user;

static void find_user(void)
{
    const struct passwd *entry = geteuid() == 0 ? getpwnam("postgres") : NULL;

    if (entry)
        found_user = (struct server_user){true, entry->pw_uid, entry->pw_gid};
}

/* By several threads. */
struct server_user postgres_user(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, find_user);
    return found_user;
}

void postgres_become_user(const struct server_user *user, int death_signal)
{
    pid_t parent = getppid();

    if (user->other && (setgroups(0, NULL) < 0 || setgid(user->gid) < 0 || setuid(user->uid) < 0))
        _exit(1);
    prctl(PR_SET_PDEATHSIG, death_signal);
    if (getppid() != parent)
        _exit(1);
}

static double version_of(const char *path)
{
    const char *at = strstr(path, "/postgresql/");

    return at ? strtod(at + strlen("/postgresql/"), NULL) : 0;
}

void postgres_program(const char *name, char ret_path[PROGRAM_MAX])
{
    char pattern[PROGRAM_MAX];
    glob_t found;
    double newest = 0;

    snprintf(ret_path, PROGRAM_MAX, "%s", name);
    snprintf(pattern, sizeof pattern, "/usr/lib/postgresql/*/bin/%s", name);
    if (glob(pattern, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++)
            if (version_of(found.gl_pathv[i]) > newest) {
                newest = version_of(found.gl_pathv[i]);
                snprintf(ret_path, PROGRAM_MAX, "%s", found.gl_pathv[i]);
            }
    globfree(&found);
}

static int run_as(const struct server_user *user, const char *const argv[], char *reply,
                  size_t size)
{
    pid_t parent = getpid(), pid;
    size_t used = 0;
    int ends[2], status = -1;
    ssize_t got = 0;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return servers_complain("pipe: %m");
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        servers_become_child(parent);
        if (dup2(ends[1], 1) < 0 || chdir("/") < 0)
            _exit(1);
        postgres_become_user(user, SIGKILL);
        execvp(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    close(ends[1]);
    while (
        pid > 0 && used + 1 < size &&
        ((got = read(ends[0], reply + used, size - 1 - used)) > 0 || (got < 0 && errno == EINTR)))
        used += got > 0 ? (size_t)got : 0;
    reply[used] = '\0';
    if (used > 0 && reply[used - 1] == '\n')
        reply[used - 1] = '\0';
    close(ends[0]);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return pid > 0 && got == 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

int postgres_run(const char *const argv[], char *reply, size_t size)
{
    struct server_user user = postgres_user();

    return run_as(&user, argv, reply, size);
}

/* ---- directories ----------------------------------------------------------------------------- */

/* May anybody enter it? */
static bool is_reachable(const char *path)
{
    char part[SERVER_DIR_MAX];
    struct stat st;

    for (size_t i = 1; i <= strlen(path); i++)
        if (path[i] == '/' || path[i] == '\0') {
            snprintf(part, sizeof part, "%.*s", (int)i, path);
            if (stat(part, &st) < 0 || !(st.st_mode & S_IXOTH))
                return false;
        }
    return true;
}

int postgres_make_directory(const char *name, char ret_dir[SERVER_DIR_MAX])
{
    const char *base = getenv("HOLDFAST_TEST_DIR");
    struct server_user user = postgres_user();

    if (!getenv("HF_POSTGRES_ON_DISK") && access("/dev/shm", W_OK) == 0)
        base = "/dev/shm";
    if (!base || strlen(base) > SERVER_DIR_MAX / 2 || (user.other && !is_reachable(base)))
        base = "/tmp";
    snprintf(ret_dir, SERVER_DIR_MAX, "%s/%s.XXXXXX", base, name);
    if (mkdtemp(ret_dir) && (!user.other || chown(ret_dir, user.uid, user.gid) == 0))
        return 0;
    servers_complain("%s: %m", ret_dir);
    ret_dir[0] = '\0';
    return -1;
}

/* ---- data ------------------------------------------------------------------------------------ */

int postgres_initdb(const char *dir)
{
    char program[PROGRAM_MAX], data[SERVER_DIR_MAX + 16], reply[8192];

    postgres_program("initdb", program);
    snprintf(data, sizeof data, "%s/data", dir);
    /* Small segments of the log: there is less to copy. */
    if (postgres_run((const char *const[]){program, "-D", data, "-A", "trust", "-U", "postgres",
                                           "-E", "UTF8", "--locale=C.UTF-8", "--no-sync",
                                           "--wal-segsize=1", NULL},
                     reply, sizeof reply) == 0)
        return 0;
    return servers_complain("initdb: %s", reply);
}

static int copy(const char *from, const char *to)
{
    char reply[1024];

    /* As ourselves: root keeps the owner. */
    return run_as(&(struct server_user){0}, (const char *const[]){"cp", "-a", from, to, NULL},
                  reply, sizeof reply);
}

/* Whoever comes first leaves one for all others. Two at once are no harm: one of them is renamed into its place. */
static void keep_template(const char *dir, const char *template)
{
    char data[SERVER_DIR_MAX + 16], fresh[4096 + 32];

    snprintf(data, sizeof data, "%s/data", dir);
    snprintf(fresh, sizeof fresh, "%s.%d", template, (int)getpid());
    if (copy(data, fresh) == 0 && rename(fresh, template) == 0)
        return;
    servers_empty_directory(fresh);
    rmdir(fresh);
}

int postgres_copy_template(const char *dir)
{
    char template[4096], data[SERVER_DIR_MAX + 16];
    const char *base = getenv("HOLDFAST_TEST_DIR");

    if (!base)
        return postgres_initdb(dir);
    snprintf(template, sizeof template, "%s/" TEMPLATE, base);
    snprintf(data, sizeof data, "%s/data", dir);
    if (access(template, F_OK) == 0)
        return copy(template, data) == 0 ? 0 : servers_complain("cannot copy %s", template);
    if (postgres_initdb(dir) < 0)
        return -1;
    keep_template(dir, template);
    return 0;
}

int postgres_backup(const char *dir, int primary_port, const char *name)
{
    char program[PROGRAM_MAX], data[SERVER_DIR_MAX + 16], from[256], reply[4096];

    postgres_program("pg_basebackup", program);
    snprintf(data, sizeof data, "%s/data", dir);
    snprintf(from, sizeof from, "host=127.0.0.1 port=%d user=postgres application_name=%s",
             primary_port, name);
    if (postgres_run((const char *const[]){program, "-D", data, "-d", from, "-R", "-X", "stream",
                                           "-c", "fast", "--no-sync", NULL},
                     reply, sizeof reply) == 0)
        return 0;
    return servers_complain("pg_basebackup: %s", reply);
}
