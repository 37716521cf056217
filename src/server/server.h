/* server.h: holdfastd's moving parts, for the files of this room.
 *
 *     connection.c   bytes in, bytes out, one client
 *     hearing.c      what clients send, and when it is listened to
 *     commands.c     words of a client → a command of the table, or an answer at once
 *     answers.c      effects of the log → answers and pushes
 *     waiting.c      who waits at which place, who watches which name
 *     losses.c       who has which hold, and is told when it is lost
 *     reading.c      SHOW, LOCKS, CHECK: what is read in the log's order
 *     info.c         INFO, COMMAND: what is said without the log
 *     cluster.c      CLUSTER: who belongs to it, who leads, and where clients find them
 *     bootstrap.c    CLUSTER INIT: founding a cluster, waiting to belong to one
 *     membership.c   a node that waited becomes a member
 *     adding.c       CLUSTER ADD: asks a node, and adds it
 *     restore.c      a data directory from a backup
 *     node.c         the parts under the log: storage, network, replica
 *     listening.c    sockets that clients come to
 *     serving.c      the loop: what happens when
 *
 * One thread, one libuv loop. In each round: sockets are read and their commands submitted, the log's
 * effects are turned into answers, then the batch is proposed and the answers are written.
 *
 * The answers of a connection come in the order of its commands. Commands that go through the log
 * keep that order by themselves; one that does not waits until no other is under way; and an ACQUIRE
 * that waits lets no later command of its connection begin. */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include "base/list.h"
#include "base/siphash.h"
#include "core/core.h"
#include "replica_libraft/replica.h"
#include "resp/resp.h"
#include "server/adding.h"
#include "server/bootstrap.h"
#include "server/config.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#define CLIENT_NAME_MAX 64
#define OBSERVED_MAX 65536u  /* names that one connection may observe */
#define LOSSES_PER_LEASE 64u /* holds of one lease that a RENEW has a connection told of */
#define WAITERS_MAX 1048576u /* places that one connection may wait at, by PUSH */
#define ACCEPTS_PER_ROUND 64
#define READ_LEAST 4096u          /* bytes of room for one read */
#define OUTPUT_PAUSE (256u << 10) /* who has so much unread gets no further command served */
/* Who has not said the password yet may do what is needed to say it. */
#define UNAUTHENTICATED_MS 10000    /* until then it has said it */
#define UNAUTHENTICATED_BYTES 4096u /* of one command, and of answers that it has not read */
#define UNAUTHENTICATED_WORDS 64u   /* of one command */
#define UNAUTHENTICATED_SHARE 4u    /* they are at most one in so many of --max-clients, */
#define UNAUTHENTICATED_MAX 1024u   /* and at most so many */
#define LATELY_MS 50                /* a client that sent something is busy for so long */

struct server;
struct connection;

/* ---- what somebody waits for ------------------------------------------------------------------- */

/* What a command that is under way will be answered like. */
struct request {
    struct connection *connection; /* outlives it */
    const struct command *command;
    bool push;             /* ACQUIRE … PUSH */
    bool waits;            /* ACQUIRE … WAIT: nothing else of the connection begins meanwhile */
    bool once;             /* of a once-record */
    uint32_t parts, total; /* RENEW: answers still to come, of so many */
    /* A copy of what is needed later: the name and lease of an ACQUIRE that waits, or the words of
     * something that is read. Freed with the request. */
    struct words *words;
    struct list node; /* in the server's spare ones */
};

/* The words of a command, copied. */
struct words {
    uint32_t count;
    struct core_text word[]; /* each with a NUL behind it */
};

/* A place in a queue that a connection waits at. */
struct waiter {
    uint64_t ticket;
    uint32_t attachment;
    struct connection *connection;
    struct request *request;   /* of a blocked one; NULL: it is told by a push */
    bool blocks;               /* its connection; else it is told by a push */
    struct list of_connection; /* or of those that leave */
    struct waiter *next;       /* in its chain of the table */
};

struct waiters {
    struct waiter **chains;
    uint32_t count, capacity;
};

/* A hold that a connection is told of when it is lost: the one that acquired or renewed it last. */
struct holder {
    uint64_t token;
    struct connection *connection;
    struct list of_connection;
    struct holder *next; /* in its chain */
};

struct holders {
    struct holder **chains;
    uint32_t count, capacity;
};

struct observer {
    struct connection *connection;
    struct list of_connection;
    struct observer *next; /* in its chain */
    bool subscribed;       /* by SUBSCRIBE: is told in that form */
    size_t size;
    char name[];
};

struct observers {
    struct observer **chains;
    uint32_t count, capacity;
    unsigned char seed[SIPHASH_SEED]; /* clients choose the names */
};

/* ---- a client ------------------------------------------------------------------------------------ */

struct connection {
    struct server *server;
    uint64_t id;
    int fd;
    uint32_t asked; /* events of epoll */
    struct resp_reader *reader;
    const struct resp_node *value; /* a command that has to wait */
    bool unread; /* there may be more commands in the reader: first of all these */
    const struct command *command; /* the last that began */
    struct resp_writer out;
    size_t sent; /* bytes of out that are gone */

    uint32_t under_way; /* commands whose answer has not been written */
    struct waiter *blocked;
    bool waits;   /* an ACQUIRE that may wait has been submitted: nothing else begins */
    bool starved; /* the batch was full */
    bool resp3, authenticated; /* has said the password, or needs none */
    bool losses;               /* is told of the holds that it loses */
    bool ending;               /* no more commands; closed when the last answer is out */
    bool closed;               /* of no use any more; freed when nothing refers to it */
    bool peer_done;            /* the client sends no more, and all it sent has been read */
    bool hung_up;              /* the client sends no more */
    char *last_words;          /* an error to be said before it is closed */
    uint32_t references;       /* requests, and the open handle */
    uint32_t subscriptions, waiting, observing;
    int64_t heard_ms, came_ms;
    uint64_t commands;
    uint32_t at_once; /* commands that came with the last read; 0 if that is a while ago */
    char name[CLIENT_NAME_MAX + 1];
    char address[ENDPOINT_TEXT_MAX];

    struct list node; /* of all connections */
    struct list unauthenticated;
    struct list dirty; /* has something to write */
    struct list ready; /* may go on */
    struct list busy;  /* sent something lately */
    struct list waiters, observers, holders;
};

/* What a node has said of itself to this one: where clients find it, and its life (founding.h). */
struct said {
    uint64_t id;
    char about[CORE_ADDRESS_MAX + 1];
    bool lost; /* it is a member, and this is not the life that the members know */
};

struct listener {
    struct server *server;
    struct endpoint endpoint;
    int fd;
    uv_poll_t poll;
};

struct hearing {
    int fd; /* an epoll set of the clients' sockets */
    uv_poll_t ear;
    bool deaf;
    struct list gone;        /* connections whose events may have been fetched */
    struct resp_spare spare; /* what readers without anything to read have left */
};

struct server {
    const struct config *config;
    uv_loop_t *loop;
    struct hearing hearing;
    struct replica *replica;
    struct storage *storage;
    struct network *network;            /* NULL: a node alone */
    char address[CORE_ADDRESS_MAX + 1]; /* where clients find this node, */
    char about[CORE_ADDRESS_MAX + 1]; /* and what it says of itself to others: that, and its life */
    struct said said[REPLICA_MEMBERS_MAX];
    struct bootstrap bootstrap;
    struct adding adding;
    bool said_new;                       /* something that the table may not know */
    bool has_log;                        /* and its directory says so */
    uint64_t leader_id, members_version; /* as they were a round ago */
    uint64_t agreed_version;             /* of the members when they were last agreed on: */
    struct agreed {
        uint64_t id;
        bool votes;
        char address[REPLICA_ADDRESS_MAX + 1]; /* for its peers */
    } agreed[REPLICA_MEMBERS_MAX];
    uint64_t removed[REPLICA_MEMBERS_MAX]; /* the last that were members, and then were not */
    bool transferring;                     /* another node is asked to lead, as it was wished */
    bool handed_over; /* a clean stop has asked another node to lead, and that is over */
    void (*node_closed)(void *context);
    void *node_closed_context;
    int64_t
        deposed_ms; /* since when those who are blocked wait to hear of the next leader; 0: they do not */
    uint64_t warned_us;       /* of a write to the log that took so long */
    uint64_t trimmed_after;   /* so many snapshots, memory was given back */
    uint64_t commands_before; /* a second ago */
    uint32_t quiet_s;         /* for so long nobody wanted anything */
    enum replica_role role;
    char stopped_why[ERROR_TEXT_MAX]; /* "": it is not */
    const char *shut_out;             /* why the members do not let this node in; NULL: they do */

    struct listener listeners[CONFIG_LISTEN_MAX];
    int listener_count;
    struct list connections, dirty, ready, busy, spare;
    struct list unauthenticated; /* connections, in the order in which they came */
    struct list leaving;         /* waiters whose connections are gone: their places are given up */
    struct error_text refusal;   /* why the present command is refused */
    uint32_t connection_count, unauthenticated_count, blocked_count, spare_count;
    uint32_t expected; /* commands, of those who sent something lately */
    struct waiters waiters;
    struct observers observers;
    struct holders holders;

    uv_check_t round;
    uv_timer_t timer, accept_again;
    uv_idle_t spin; /* while the next thing is due in less than a timer can say */
    bool stopping;

    uint64_t next_id, accepted, refused, commands, wrong_commands;
    int64_t began_ms;
};

/* ---- connection.c ---- */
/* Takes fd on success. */
struct connection *connection_new(struct server *server, int fd, const char *address);
/* At once: nothing more is read or written. */
void connection_close(struct connection *connection);
/* It has said the password: from the next command on it may do what others may. */
void connection_authenticated(struct connection *connection);
/* After its answers are out. */
void connection_end(struct connection *connection);
void connection_unref(struct connection *connection);
/* There is something in `out`. */
void connection_dirty(struct connection *connection);
/* Its next command may begin. */
void connection_ready(struct connection *connection);
void connection_event(struct connection *connection, uint32_t events);
void connection_write_all(struct server *server);
void connections_go_on(struct server *server);
/* How many commands those may send at once who sent something lately. */
uint32_t connections_expected(struct server *server);
void connections_close_idle(struct server *server);
/* Makes room for a new one, if there is somebody who has not said the password, or no need to. False: there is none. */
bool connections_make_room(struct server *server);

/* ---- hearing.c ----------------------------------------------------------------------------------- */

void hearing_open(struct server *server);
void hearing_close(struct server *server);
/* Asks for these events of the connection, instead of those before. */
void hearing_ask(struct connection *connection, uint32_t events);
/* What was asked for is told again if it is there already: without that, only what is new is told. */
void hearing_ask_again(struct connection *connection);
/* The connection is closed: there will be no more events. */
void hearing_forget(struct connection *connection);
/* Serves what has come. */
void hearing_hear(struct server *server);
/* Deaf: what comes does not wake the loop. */
void hearing_deafen(struct server *server, bool deaf);

/* ---- commands.c ---- */
enum verdict {
    VERDICT_DONE,    /* answered, or submitted */
    VERDICT_REFUSED, /* `refusal` says why */
    VERDICT_LATER,   /* not while others of this connection are under way */
    VERDICT_FULL     /* the batch is full */
};
struct command {
    const char *name;
    int arity; /* words with the name; negative: at least so many */
    enum verdict (*run)(struct connection *connection, const struct resp_node *value);
    int traits;
    const char *summary, *syntax;
};
enum trait {
    COMMAND_LOGGED = 1,    /* goes through the log */
    COMMAND_OPEN = 2,      /* may be said before the password */
    COMMAND_SUBSCRIBED = 4 /* may be said in RESP2 after SUBSCRIBE */
};
enum verdict command_run(struct connection *connection, const struct resp_node *value);
extern const struct command commands[];
extern const size_t command_count;

/* Says why the present command is refused: "ERR …". The answer goes out when it is its turn. */
enum verdict refuse(struct connection *connection, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Into the log. words: so many words of the value from `from` on are copied for later. */
struct submission {
    struct core_command command;
    const struct resp_node *value;
    uint32_t from, words;
    bool push, waits;
};
enum verdict submit(struct connection *connection, const struct submission *submission);
void request_free(struct server *server, struct request *request);
/* One that is not for the log: it is under way until request_finish. Nothing else of its connection begins. */
struct request *request_begin(struct connection *connection);
void request_forget(struct request *request); /* it did not begin after all */

/* ---- parsing.c: words of commands. False: refused. ---- */
struct words_left {
    struct connection *connection;
    const struct resp_node *value;
    uint32_t at;  /* the next word */
    uint32_t had; /* options seen, as bits */
};
/* A command's words are all strings, so that they lie side by side behind it. NULL: no such word. */
static inline const struct resp_node *word_at(const struct resp_node *value, uint32_t index)
{
    return index < value->count ? &value[1 + index] : NULL;
}
bool word_is(const struct resp_node *word, const char *text); /* whatever the case */
struct core_text word_text(const struct resp_node *word);
bool parse_name(struct connection *connection, const struct resp_node *word,
                struct core_text *ret_name);
bool parse_lease(struct connection *connection, const struct resp_node *word,
                 struct core_text *ret_lease);
bool parse_number(struct connection *connection, const struct resp_node *word, const char *what,
                  uint64_t min, uint64_t max, uint64_t *ret_number);
bool parse_acquire(struct words_left *left, bool once, struct core_command *ret_command,
                   bool *ret_push);
/* The next word is this option, and its value (if it has one) follows. */
bool option_is(struct words_left *left, const char *name, uint32_t bit);
bool option_number(struct words_left *left, const char *what, uint64_t min, uint64_t max,
                   uint64_t *ret_number);
bool option_unknown(struct words_left *left); /* always false */
uint64_t span_in_full(uint64_t span_ms);
int64_t span_shown(int64_t left_ms);

/* ---- locking.c: the commands about locks; once.c: ONCE ---- */
enum verdict command_acquire(struct connection *, const struct resp_node *);
enum verdict command_release(struct connection *, const struct resp_node *);
enum verdict command_renew(struct connection *, const struct resp_node *);
enum verdict command_end(struct connection *, const struct resp_node *);
enum verdict command_break(struct connection *, const struct resp_node *);
enum verdict command_floor(struct connection *, const struct resp_node *);
enum verdict command_once(struct connection *, const struct resp_node *);
/* ---- reading.c ---- */
enum verdict command_check(struct connection *, const struct resp_node *);
enum verdict command_show(struct connection *, const struct resp_node *);
enum verdict command_locks(struct connection *, const struct resp_node *);
enum verdict command_observe(struct connection *, const struct resp_node *);
enum verdict command_unobserve(struct connection *, const struct resp_node *);
enum verdict command_subscribe(struct connection *, const struct resp_node *);
enum verdict command_unsubscribe(struct connection *, const struct resp_node *);
void read_now(struct request *request);
/* ---- session.c: what is between a client and us ---- */
enum verdict command_ping(struct connection *, const struct resp_node *);
enum verdict command_auth(struct connection *, const struct resp_node *);
enum verdict command_hello(struct connection *, const struct resp_node *);
enum verdict command_client(struct connection *, const struct resp_node *);
enum verdict command_select(struct connection *, const struct resp_node *);
enum verdict command_quit(struct connection *, const struct resp_node *);
/* ---- info.c ---- */
enum verdict command_info(struct connection *, const struct resp_node *);
enum verdict command_command(struct connection *, const struct resp_node *);
const char *role_word(const struct server *server);
/* ---- cluster_commands.c ---- */
enum verdict command_cluster(struct connection *, const struct resp_node *);
/* What the replica calls. */
void cluster_changed(void *context, void *request, enum replica_change result);
/* replica_transfer, and a line in the log about what comes of it. */
int cluster_hand_over(struct server *server, uint64_t to, struct request *request,
                      struct error_text *err);
/* For the log. */
int64_t cluster_term(const struct server *server);
/* Why the replica does not do it, as it is answered. */
void cluster_refusal(struct server *server, int result, const struct error_text *err,
                     char ret_text[ERROR_TEXT_MAX]);
/* ---- cluster.c ---- */
bool cluster_is_member(const struct server *server, uint64_t id);
/* A member, and has come back without its data. */
bool cluster_is_lost(const struct server *server, uint64_t id);
/* That there ever was, as far as this node has heard. */
uint64_t cluster_highest_id(const struct server *server);
/* Another node has connected, or this one to it, and has introduced itself. False: it is not wanted. */
bool cluster_met(struct server *server, const struct network_node *node);
/* Members that came back without their data wait, and cannot know why nobody comes: they are told. */
void cluster_tell_lost(struct server *server);
/* This node is one of them, as another says. */
void cluster_told_lost(struct server *server);
/* Is there a connection to that node now? context: the server. */
bool cluster_is_connected(void *context, uint64_t id);
/* This node leads, and another one has less of the log than it had: it is asked, and told that. */
void cluster_doubts(void *context, uint64_t id, uint64_t term, uint64_t index);
void cluster_told_had(struct server *server, const struct network_words *words, uint64_t index,
                      const char *rest);
/* What a node is told that is not let in, and that this node was told. */
char cluster_why_not(struct server *server, uint64_t id);
void cluster_turned_away(struct server *server, char why);
bool cluster_was_removed(const struct server *server);
/* What an operator does next with this node, which waits or was removed; "": nothing. */
void cluster_advice(const struct server *server, char *ret_text, size_t size);
/* The leader makes known what it has been told. */
void cluster_publish(struct server *server);
/* Forgets what those have said who are no members any more: after each change of them. */
void cluster_tidy(struct server *server);
/* Hangs up on those who are no members any more: when the members are agreed on, or another node leads. */
void cluster_cut_off(struct server *server);
/* Where clients find this node. False: nobody has said. */
bool cluster_client_address(const struct server *server, uint64_t id, char *ret_text, size_t size);
/* The leader's, if it is another node. */
bool cluster_leader_address(const struct server *server, char *ret_text, size_t size);
/* ---- adding.c ---- */
enum verdict command_cluster_add(struct connection *, const struct resp_node *);
/* ---- bootstrap.c ---- */
enum verdict command_cluster_init(struct connection *, const struct resp_node *);
/* ---- node.c ---- */
int node_open(struct server *server, const struct replica_host *host, struct error_text *err);
/* After what node_open has opened, all or in part. */
void node_close(struct server *server, void (*done)(void *context), void *context);

/* ---- answers.c: what the replica calls ---- */
/* Its answer is in `out`. */
void request_finish(struct request *request);
void answer_effect(void *context, void *request, const struct core_effect *effect);
void answer_failed(void *context, void *request, enum replica_failure failure);
/* What to say to somebody who asks a node that does not lead. */
const char *answer_not_leading(struct server *server, char *ret_text, size_t size);
/* This node leads no more: who is blocked hears of it. */
void answer_all_blocked(struct server *server);

/* ---- waiting.c ---- */
struct waiter *waiter_find(struct server *server, uint64_t ticket);
struct waiter *waiter_add(struct connection *connection, uint64_t ticket, uint32_t attachment,
                          struct request *request);
void waiter_remove(struct waiter *waiter);
/* Its connection is gone: the place is given up, as soon as the log takes it. */
void waiter_leave(struct waiter *waiter);
void waiters_leave(struct server *server);
/* False: it does so already, or too many. */
bool observer_add(struct connection *connection, struct core_text name, bool subscribed);
bool observer_remove(struct connection *connection, struct core_text name, bool subscribed);
void observer_drop(struct observer *observer);
/* fn for each that observes the name. */
void observers_each(struct server *server, struct core_text name,
                    void (*fn)(struct observer *observer, void *context), void *context);

/* ---- losses.c ---- */
/* The connection has the hold with this token from now on, if it wants to be told of losses. */
void holder_set(struct connection *connection, uint64_t token);
/* It has all that this lease holds, or as much as a connection is told of. */
void holder_renewed(struct connection *connection, struct core_text lease);
/* The hold of this effect has ended: whoever has it is told, unless it has given it up. */
void holder_ended(struct server *server, const struct core_effect *effect, const char *why);
void holders_drop(struct connection *connection);

/* ---- listening.c ---- */
int listening_open(struct server *server, struct error_text *err);
void listening_close(struct server *server);

/* ---- reload.c ---- */
/* SIGHUP. config: the server's. */
void reload(struct server *server, struct config *config);

/* ---- restore.c ---- */
/* Returns an exit status. */
int restore_backup(const struct config *config);

/* ---- serving.c ---- */
/* Serves until told to stop by SIGTERM or SIGINT; returns an exit status. SIGHUP has files read again, into config. */
int serve(struct config *config);

#endif
