#include "cli/job.h"
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct start {
    char *const *argv, *const *envp;
    const int *outputs;
    const struct signals *signals;
    int terminal; /* to take over, or -1 */
    pid_t parent;
    volatile int failure; /* errno, written by the child, read by the parent */
};

/* Runs in the child of vfork, in our memory while we are held up: nothing but system calls, and no
 * write except to start->failure. */
static _Noreturn void become_job(struct start *start)
{
    setpgid(0, 0);
    if (start->terminal >= 0)
        tcsetpgrp(start->terminal, getpid()); /* SIGTTOU is still blocked here */
    /* kill -9 of holdfast ends the lock; the job must not run on without it. The signal is tied to
     * the thread that called vfork, which is our main thread and lives as long as we do. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != start->parent)
        _exit(EXIT_OURS);
    if (start->outputs && (dup2(start->outputs[0], STDOUT_FILENO) < 0 ||
                           dup2(start->outputs[1], STDERR_FILENO) < 0)) {
        start->failure = errno;
        _exit(EXIT_OURS);
    }
    sigaction(SIGCHLD, &start->signals->inherited_child, NULL);
    sigprocmask(SIG_SETMASK, &start->signals->inherited, NULL);
    execvpe(start->argv[0], start->argv, start->envp);
    start->failure = errno;
    _exit(EXIT_NOT_FOUND);
}

/* The terminal is handed over at the start only if the job looks interactive. In a pipeline such as
 * `holdfast run x report | less`, less needs it; there the job gets it when it asks (SIGTTIN). */
static int terminal_to_hand_over(void)
{
    if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && tcgetpgrp(STDIN_FILENO) == getpgrp())
        return STDIN_FILENO;
    return -1;
}

int job_start(struct job *job, char *const *argv, char *const *envp, const int outputs[2],
              const struct signals *signals)
{
    struct start start = {.argv = argv,
                          .envp = envp,
                          .outputs = outputs,
                          .signals = signals,
                          .terminal = terminal_to_hand_over(),
                          .parent = getpid()};
    pid_t pid;

    /* vfork: the child has its group, its terminal and its death signal before we run on, and an
     * exec that failed needs no pipe to tell us. It also costs a third of a fork. */
    pid = vfork();
    if (pid == 0)
        become_job(&start);
    if (pid < 0)
        return errno;
    *job = (struct job){.pid = pid, .terminal = start.terminal, .foreground = start.terminal >= 0};
    if (start.failure != 0) {
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
        job->ended = true;
        job_finish(job);
        return start.failure;
    }
    return 0;
}

void job_signal(const struct job *job, int number)
{
    if (job->pid > 0) /* 0 would be our own group */
        kill(-job->pid, number);
}

void job_look(struct job *job)
{
    int status;

    while (!job->ended && waitpid(job->pid, &status, WNOHANG | WUNTRACED | WCONTINUED) > 0) {
        if (WIFSTOPPED(status)) {
            job->stopped_by = WSTOPSIG(status);
        } else if (WIFCONTINUED(status)) {
            job->stopped_by = 0;
        } else {
            job->ended = true;
            job->stopped_by = 0;
            job->wait_status = status;
        }
    }
}

static bool we_are_in_front(struct job *job)
{
    if (job->terminal < 0)
        job->terminal = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
    return job->terminal >= 0 && tcgetpgrp(job->terminal) == getpgrp();
}

static void give_terminal(struct job *job)
{
    if (tcsetpgrp(job->terminal, job->pid) == 0)
        job->foreground = true;
}

static void take_terminal(struct job *job)
{
    /* Only what we gave: somebody else may have put themselves in front since. */
    if (job->foreground && tcgetpgrp(job->terminal) == job->pid)
        tcsetpgrp(job->terminal, getpgrp());
}

void job_follow_stop(struct job *job)
{
    int number = job->stopped_by;

    if ((number == SIGTTIN || number == SIGTTOU) && we_are_in_front(job)) {
        give_terminal(job);
        job_signal(job, SIGCONT);
        return;
    }
    /* A SIGSTOP that did not come by way of a terminal stops the job, not us: we go on renewing. */
    if (number == SIGSTOP && !job->foreground)
        return;
    take_terminal(job);
    /* All of our group, as the terminal does it: a script around us has to stop as well. */
    signals_stop(number == SIGSTOP ? SIGTSTP : number, true);
}

void job_continue(struct job *job)
{
    if (job->foreground && we_are_in_front(job))
        give_terminal(job);
    job->stopped_by = 0;
    job_signal(job, SIGCONT);
}

void job_finish(struct job *job)
{
    take_terminal(job);
    if (job->terminal > STDERR_FILENO)
        close(job->terminal);
    job->terminal = -1;
}

void job_adopt_orphans(bool yes)
{
    prctl(PR_SET_CHILD_SUBREAPER, yes ? 1UL : 0UL);
}

bool job_has_remains(const struct job *job)
{
    while (waitpid(-job->pid, NULL, WNOHANG) > 0)
        ; /* those we adopted */
    return kill(-job->pid, 0) == 0 || errno == EPERM;
}
