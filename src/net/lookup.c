#include "net/lookup.h"

#include "base/list.h"

#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* One question to the resolver, and its thread. Whoever is the last to need it frees it. */
struct search {
    struct list node; /* among those under way */
    struct list askers;
    int needed_by; /* its thread, and those who asked */
    bool over;
    int failure, error; /* of getaddrinfo, constant when it is over; errno with EAI_SYSTEM */
    struct addrinfo *found;
    char host[sizeof((struct address *)NULL)->host];
    char port[sizeof((struct address *)NULL)->port];
};

struct lookup {
    struct list node; /* among the askers of its search */
    struct search *search;
    const struct address *address;
    int fd;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of all searches */
static struct list under_way = {&under_way, &under_way};

/* The threads are not there. Who asked before is not asked for the result: lookup_after_fork. */
static void after_fork_in_child(void)
{
    mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    list_init(&under_way);
}

/* With the mutex. */
static void need_no_more(struct search *search)
{
    if (--search->needed_by > 0)
        return;
    if (search->found)
        freeaddrinfo(search->found);
    free(search);
}

static void *run(void *arg)
{
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct search *search = arg;
    struct addrinfo *found = NULL;
    int failure = getaddrinfo(search->host, search->port, &hints, &found), error = errno;

    pthread_mutex_lock(&mutex);
    search->failure = failure;
    search->error = error;
    search->found = failure == 0 ? found : NULL;
    search->over = true;
    list_remove(&search->node);
    LIST_EACH(node, &search->askers)
    {
        eventfd_write(LIST_ENTRY(node, struct lookup, node)->fd, 1);
    }
    need_no_more(search);
    pthread_mutex_unlock(&mutex);
    return NULL;
}

/* What has this thread's code must not be unloaded before it has ended, and who unloads it does not know when that is. */
static void prepare(void)
{
    Dl_info about;

    pthread_atfork(NULL, NULL, after_fork_in_child);
    if (dladdr((void *)&under_way, &about) && about.dli_fname)
        dlopen(about.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

/* 0, or the errno of why not. */
static int start(struct search *search)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    pthread_t thread;
    int failure;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    failure = pthread_create(&thread, &attributes, run, search);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failure;
}

/* With the mutex. NULL, with errno: there cannot be one. */
static struct search *find_or_start(const struct address *address)
{
    struct search *search;

    LIST_EACH(node, &under_way)
    {
        search = LIST_ENTRY(node, struct search, node);
        if (strcmp(search->host, address->host) == 0 && strcmp(search->port, address->port) == 0)
            return search;
    }
    search = calloc(1, sizeof *search);
    if (!search)
        return NULL;
    memcpy(search->host, address->host, sizeof search->host);
    memcpy(search->port, address->port, sizeof search->port);
    list_init(&search->askers);
    search->needed_by = 1;
    errno = start(search);
    if (errno != 0) {
        free(search);
        return NULL;
    }
    list_append(&under_way, &search->node);
    return search;
}

int lookup_begin(const struct address *address, struct lookup **ret_lookup, struct error_text *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct lookup *lookup = calloc(1, sizeof *lookup);

    if (!lookup)
        return error_set(err, HF_ENOMEM, "out of memory");
    pthread_once(&once, prepare);
    lookup->address = address;
    lookup->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_lock(&mutex);
    lookup->search = lookup->fd < 0 ? NULL : find_or_start(address);
    if (lookup->search) {
        lookup->search->needed_by++;
        list_append(&lookup->search->askers, &lookup->node);
    }
    pthread_mutex_unlock(&mutex);
    if (!lookup->search) {
        error_set_errno(err, HF_ENOMEM, errno, "%s cannot be looked up", address->shown);
        lookup_after_fork(lookup);
        free(lookup);
        return HF_ENOMEM;
    }
    *ret_lookup = lookup;
    return HF_OK;
}

int lookup_fd(const struct lookup *lookup)
{
    return lookup->fd;
}

int lookup_result(const struct lookup *lookup, const struct addrinfo **ret_found,
                  struct error_text *err)
{
    const struct search *search = lookup->search;
    bool over;

    pthread_mutex_lock(&mutex);
    over = search->over;
    pthread_mutex_unlock(&mutex);
    if (!over)
        return LOOKUP_AGAIN;
    if (search->failure == EAI_SYSTEM)
        return error_set_errno(err, HF_EUNREACH, search->error, "%s", lookup->address->shown);
    if (search->failure)
        return error_set(err, search->failure == EAI_MEMORY ? HF_ENOMEM : HF_EUNREACH, "%s: %s",
                         lookup->address->shown, gai_strerror(search->failure));
    *ret_found = search->found;
    return HF_OK;
}

void lookup_end(struct lookup *lookup)
{
    if (!lookup)
        return;
    pthread_mutex_lock(&mutex);
    list_remove(&lookup->node);
    need_no_more(lookup->search);
    pthread_mutex_unlock(&mutex);
    lookup_after_fork(lookup);
    free(lookup);
}

void lookup_after_fork(struct lookup *lookup)
{
    int fd = lookup ? lookup->fd : -1;

    if (fd < 0)
        return;
    lookup->fd = -1;
    close(fd);
}
