/* node.h: one Redis server: our connections to it, and what it says about itself. */
#ifndef ENGINES_REDIS_NODE_H
#define ENGINES_REDIS_NODE_H

#include "engines/engine.h"
#include "net/link.h"

#include <pthread.h>
#include <stdatomic.h>

#define NODE_LINKS_MAX 16 /* at once, to one server; more calls than that wait for a turn */

enum handshake_step {
    HANDSHAKE_AUTH,
    HANDSHAKE_SELECT,
    HANDSHAKE_NAME,
    HANDSHAKE_INFO,
    HANDSHAKE_SUBSCRIBE,
    HANDSHAKE_STEPS_MAX
};

struct node {
    struct address address;
    const struct access *access;
    const struct engine_host *host;

    unsigned database;
    const char *channel;                                      /* NULL: none */
    enum handshake_step handshake_steps[HANDSHAKE_STEPS_MAX]; /* what every link says first */
    struct link_handshake handshake;
    struct turns turns; /* of the address; all links share it */

    pthread_mutex_t mutex;           /* of all below */
    char password[PASSWORD_MAX + 1]; /* the last that was read */
    pthread_cond_t returned;
    struct {
        struct link *link;
        int64_t since_ms;
    } idle[NODE_LINKS_MAX];
    int idle_count, open_count;
    struct link *_Atomic links[NODE_LINKS_MAX]; /* all of them; for the child of a fork */

    _Atomic bool suspect; /* it let its time pass, and has not caught up: not waited for */
    bool warned_policy;
    bool facts_known;   /* it may forbid us to ask */
    int64_t started_ms; /* clock_boot_ms when the server started, as far as it says */
};

/* address: copied; access, host, channel: borrowed. channel: to subscribe to, or NULL. */
void node_init(struct node *node, const struct address *address, const struct access *access,
               unsigned database, const char *channel, const struct engine_host *host);
/* All links have been given back; or, forked: leaves them alone. */
void node_close(struct node *node, bool forked);
/* Before that: waits until the deadline for answers that are still owed. A connection that is closed
 * on unread answers is reset, and with it may go a release that the server has not read yet. */
void node_linger(struct node *node, int64_t deadline_ms);
/* In the child of a fork: closes the descriptors. Async-signal-safe. */
void node_after_fork(struct node *node);

/* A link to use alone until node_give; perhaps not READY yet. */
int node_take(struct node *node, int64_t deadline_ms, struct link **ret_link,
              struct error_text *err);
void node_give(struct node *node, struct link *link, bool over);

/* How long the server has been up, in ms; -1 if it does not say. */
int64_t node_uptime_ms(struct node *node);

/* What an error reply means: a negative HF_E... with words for the user. */
int node_refusal(const struct node *node, const struct resp_node *reply, struct error_text *err);

#endif
