/* cluster.h: who belongs to the cluster, who leads it, and where clients find each of them, as this node sees it. */
#ifndef SERVER_CLUSTER_H
#define SERVER_CLUSTER_H

#include "core/core.h"
#include "node/node.h"

#include <stdbool.h>
#include <stdint.h>

struct server;

struct membership_view {
    struct said { /* what a node has said of itself to this one */
        uint64_t id, incarnation;
        char client[CORE_ADDRESS_MAX + 1]; /* where clients find it */
        char peer[CORE_ADDRESS_MAX + 1];   /* where it came from, or was reached */
        bool lost; /* it is a member, and this is not the incarnation that the members know, */
        int64_t lost_ms; /* since then, */
        bool lost_noted; /* and the log says so */
    } said[REPLICA_MEMBERS_MAX];
    bool said_new;                       /* something that the table may not know */
    uint64_t leader_id, members_version; /* as they were a round ago */
    uint64_t agreed_version;             /* of the members when they were last agreed on: */
    struct agreed {
        uint64_t id;
        bool votes;
        char address[REPLICA_ADDRESS_MAX + 1]; /* for its peers */
    } agreed[REPLICA_MEMBERS_MAX];
    uint64_t removed[REPLICA_MEMBERS_MAX]; /* the last that were members, and then were not */
    bool told_removed;                     /* whom cluster_met has refused last was one of them */
    const char *shut_out; /* why the members do not let this node in; NULL: they do */
};

struct member { /* of the cluster, as this node sees it */
    uint64_t id, incarnation;
    char address[REPLICA_ADDRESS_MAX + 1]; /* for its peers */
    bool votes;                            /* no: it is catching up */
    bool known;                            /* what follows: to a leader whom it has answered */
    uint64_t match_index;                  /* so much of the log it has on its disk; else 0 */
    int64_t silent_ms; /* since it said something to this node; -1: it never did */
};

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

#endif
