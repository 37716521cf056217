/* server.h: holdfastd's moving parts, for the files of this room.
 *
 *     connection.c   bytes in, bytes out, one client
 *     client_poll.c  what clients send, and when it is listened to
 *     session_host.c what sessions get from here: commands, answers and who waits are src/session
 *     commands.c     the commands beside those about locks:
 *     cmd_connection.c  HELLO, AUTH, CLIENT: what is between a client and us
 *     info.c         INFO, COMMAND: what is said without the log
 *     cluster.c      CLUSTER: who belongs to it, who leads, and where clients find them
 *     bootstrap.c    CLUSTER INIT: founding a cluster, waiting to belong to one
 *     membership.c   a node that waited becomes a member
 *     adding.c       CLUSTER ADD: asks a node, and adds it
 *     restore.c      a data directory from a backup
 *     node.c         opening and closing what is beneath: src/node
 *     listening.c    sockets that clients come to
 *     loop.c         the loop: what happens when
 *
 * One thread, one libuv loop. In each round: sockets are read and their commands submitted, the log's
 * effects are turned into answers, then the batch is proposed and the answers are written. */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include "base/list.h"
#include "core/core.h"
#include "node/node.h"
#include "resp/resp.h"
#include "server/adding.h"
#include "server/bootstrap.h"
#include "server/config.h"
#include "session/commands.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#define CLIENT_NAME_MAX 64
#define ACCEPTS_PER_ROUND 64
#define READ_LEAST 4096u /* bytes of room for one read */
/* Who has not said the password yet may do what is needed to say it (also UNAUTHENTICATED_BYTES). */
#define UNAUTHENTICATED_MS 10000  /* until then it has said it */
#define UNAUTHENTICATED_WORDS 64u /* of one command */
#define UNAUTHENTICATED_SHARE 4u  /* they are at most one in so many of --max-clients, */
#define UNAUTHENTICATED_MAX 1024u /* and at most so many */
#define LATELY_MS 50              /* a client that sent something is busy for so long */

struct server;
struct connection;

/* ---- a client ------------------------------------------------------------------------------------ */

struct connection {
    struct server *server;
    struct session session;
    uint64_t id;
    int fd;
    uint32_t asked;   /* events of epoll */
    bool hung_up;     /* the client sends no more */
    char *last_words; /* an error to be said before it is closed */
    int64_t heard_ms, came_ms;
    uint32_t at_once; /* commands that came with the last read; 0 if that is a while ago */
    char name[CLIENT_NAME_MAX + 1];
    char address[ENDPOINT_TEXT_MAX];

    struct list unauthenticated;
    struct list dirty; /* has something to write */
    struct list ready; /* may go on */
    struct list busy;  /* sent something lately */
};

static inline struct connection *connection_of(struct session *session)
{
    return LIST_ENTRY(session, struct connection, session);
}

/* What a node has said of itself to this one. */
struct said {
    uint64_t id, incarnation;
    char client[CORE_ADDRESS_MAX + 1]; /* where clients find it */
    bool lost; /* it is a member, and this is not the incarnation that the members know */
};

struct member { /* of the cluster, as this node sees it */
    uint64_t id, incarnation;
    char address[REPLICA_ADDRESS_MAX + 1]; /* for its peers */
    bool votes;                            /* no: it is catching up */
    bool known;                            /* what follows: to a leader whom it has answered */
    uint64_t match_index;                  /* so much of the log it has on its disk; else 0 */
    int64_t silent_ms; /* since it said something to this node; -1: it never did */
};

struct listener {
    struct server *server;
    struct endpoint endpoint;
    int fd;
    uv_poll_t poll;
};

struct client_poll {
    int fd; /* an epoll set of the clients' sockets */
    uv_poll_t handle;
    bool paused;
    struct list gone;        /* connections whose events may have been fetched */
    struct resp_spare spare; /* what readers without anything to read have left */
};

struct server {
    const struct config *config;
    uv_loop_t *loop;
    struct client_poll client_poll;
    struct node *node;
    const struct replica *replica;      /* the node's, to look at */
    bool has_links;                     /* with other nodes; else it is a node alone */
    char address[CORE_ADDRESS_MAX + 1]; /* where clients find this node */
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
    bool told_removed;                     /* whom cluster_met has refused last was one of them */
    bool transferring;                     /* another node is asked to lead, as it was wished */
    bool handed_over;         /* a clean stop has asked another node to lead, and that is over */
    uint64_t warned_us;       /* of a write to the log that took so long */
    uint64_t trimmed_after;   /* so many snapshots, memory was given back */
    uint64_t commands_before; /* a second ago */
    uint32_t quiet_s;         /* for so long nobody wanted anything */
    const char *shut_out;     /* why the members do not let this node in; NULL: they do */

    struct listener listeners[CONFIG_LISTEN_MAX];
    int listener_count;
    struct sessions sessions; /* of all connections */
    struct list dirty, ready, busy;
    struct list unauthenticated; /* connections, in the order in which they came */
    uint32_t connection_count, unauthenticated_count;
    uint32_t expected; /* commands, of those who sent something lately */

    uv_check_t round;
    uv_timer_t timer, accept_again;
    uv_idle_t spin; /* while the next thing is due in less than a timer can say */

    uint64_t next_id, accepted, refused;
    int64_t began_ms;
};

static inline struct server *server_of(const struct session *session)
{
    return LIST_ENTRY(session->sessions, struct server, sessions);
}

/* ---- connection.c ---- */
/* Takes fd on success. */
struct connection *connection_new(struct server *server, int fd, const char *address);
/* At once: nothing more is read or written. */
void connection_close(struct connection *connection);
/* It has said the password: from the next command on it may do what others may. */
void connection_authenticated(struct connection *connection);
/* What sessions call: see struct sessions_host. */
void connection_dirty(struct session *session);
void connection_answered(struct session *session, bool waited);
void connection_free(struct session *session);
void connection_event(struct connection *connection, uint32_t events);
void connection_write_all(struct server *server);
void connections_go_on(struct server *server);
/* How many commands those may send at once who sent something lately. */
uint32_t connections_expected(struct server *server);
void connections_close_idle(struct server *server);
/* Makes room for a new one, if there is somebody who has not said the password, or no need to. False: there is none. */
bool connections_make_room(struct server *server);

/* ---- client_poll.c ----------------------------------------------------------------------------------- */

void client_poll_open(struct server *server);
void client_poll_close(struct server *server);
/* Asks for these events of the connection, instead of those before. */
void client_poll_want(struct connection *connection, uint32_t events);
/* What was asked for is told again if it is there already: without that, only what is new is told. */
void client_poll_again(struct connection *connection);
/* The connection is closed: there will be no more events. */
void client_poll_forget(struct connection *connection);
/* Serves what has come. */
void client_poll_read(struct server *server);
/* Deaf: what comes does not wake the loop. */
void client_poll_pause(struct server *server, bool paused);

/* ---- session_host.c ---- */
void server_open_sessions(struct server *server);

/* ---- commands.c ---- */
extern const struct command server_commands[];
extern const size_t server_command_count;

/* ---- cmd_connection.c: what is between a client and us ---- */
enum verdict command_ping(struct session *, const struct resp_node *);
enum verdict command_auth(struct session *, const struct resp_node *);
enum verdict command_hello(struct session *, const struct resp_node *);
enum verdict command_client(struct session *, const struct resp_node *);
enum verdict command_select(struct session *, const struct resp_node *);
enum verdict command_quit(struct session *, const struct resp_node *);
/* ---- info.c ---- */
enum verdict command_info(struct session *, const struct resp_node *);
enum verdict command_command(struct session *, const struct resp_node *);
const char *role_word(const struct server *server);
/* ---- cluster_commands.c ---- */
enum verdict command_cluster(struct session *, const struct resp_node *);
/* What the replica calls. */
void cluster_changed(void *context, void *request, enum replica_change result);
/* node_transfer, and a line in the log about what comes of it. */
int cluster_hand_over(struct server *server, uint64_t to, struct request *request,
                      struct error_text *err);
/* For the log. */
int64_t cluster_term(const struct server *server);
/* Why the replica does not do it, as it is answered. */
void cluster_refusal(struct server *server, int result, const struct error_text *err,
                     char ret_text[ERROR_TEXT_MAX]);
/* ---- cluster.c ---- */
/* By their ids. Returns how many there are. */
unsigned cluster_members(const struct server *server,
                         struct member ret_members[REPLICA_MEMBERS_MAX]);
/* Another number after each change of the members, be it agreed on or not. */
uint64_t cluster_version(const struct server *server);
/* Of a member; 0: it is none. */
uint64_t cluster_incarnation(const struct server *server, uint64_t id);
bool cluster_is_member(const struct server *server, uint64_t id);
/* A member, and has come back without its data. */
bool cluster_is_lost(const struct server *server, uint64_t id);
/* That there ever was, as far as this node has heard. */
uint64_t cluster_highest_id(const struct server *server);
/* Another node has connected, or this one to it, and has introduced itself. False: it is not wanted. */
bool cluster_met(struct server *server, const struct node_peer *peer);
/* Members that came back without their data wait, and cannot know why nobody comes: they are told. */
void cluster_tell_lost(struct server *server);
/* This node is one of them, as another says. */
void cluster_told_lost(struct server *server);
/* What a node is told that is not let in, and that this node was told. */
char cluster_why_not(struct server *server, uint64_t id);
void cluster_turned_away(struct server *server, char why);
/* Another node with this one's id is a member of a cluster, and is there. */
bool cluster_is_stray(const struct server *server);
bool cluster_was_removed(const struct server *server);
/* What an operator does next with this node, which waits, was removed or has stopped; "": nothing. */
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
enum verdict command_cluster_add(struct session *, const struct resp_node *);
/* ---- bootstrap.c ---- */
enum verdict command_cluster_init(struct session *, const struct resp_node *);
/* ---- node.c ---- */
/* host: what the server does with effects, roles and so on; the rest is filled in. */
int server_open_node(struct server *server, struct node_host *host, struct error_text *err);
/* Whether or not it was opened. */
void server_close_node(struct server *server, void (*done)(void *context), void *context);

/* ---- listening.c ---- */
int listening_open(struct server *server, struct error_text *err);
void listening_close(struct server *server);

/* ---- reload.c ---- */
/* SIGHUP. config: the server's. */
void reload(struct server *server, struct config *config);

/* ---- restore.c ---- */
/* Returns an exit status. */
int restore_backup(const struct config *config);

/* ---- loop.c ---- */
/* Serves until told to stop by SIGTERM or SIGINT; returns an exit status. SIGHUP has files read again, into config. */
int serve(struct config *config);

#endif
