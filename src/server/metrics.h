/* metrics.h: what this server counts and measures, in one table: INFO says it in its words, Prometheus reads it in its own
 * (docs/admin.md). It is this node's own view, and does not go through the log.
 *
 * A new number is a row of metrics.c, with its field in struct readings; a family with labels is a function of metric_families.c. */
#ifndef SERVER_METRICS_H
#define SERVER_METRICS_H

#include "base/textbuf.h"
#include "node/node.h"
#include "server/hot.h"
#include "server/prefixes.h"
#include "session/rights.h"

#include <stdbool.h>
#include <stdint.h>

struct server;

/* What is counted here, and nowhere beneath. */
struct metrics {
    uint64_t elections_won; /* by this node */
    uint64_t
        leader_changes; /* another leads than before, this node or another, as far as it has noticed */
    uint64_t leader_losses; /* the leader was gone */
    uint64_t logins, logins_refused;
    struct prefixes prefixes;
    struct hot hot;
};

void metrics_open(struct metrics *metrics);
/* An effect of the log on this node's table. */
void metrics_effect(struct metrics *metrics, const struct core_effect *effect);
void metrics_second(struct metrics *metrics);

/* Everything, as it is at one moment. */
struct readings {
    const struct server *server;
    struct core_counts table;
    struct replica_status log;
    struct node_disk_status disk;
    uint64_t process_id, uptime_us, cpu_us, resident_bytes;
    uint64_t connections, unauthenticated, max_connections, blocked, places, observed;
    uint64_t accepted, refused, commands, wrong_commands, denied_commands, over_quota_commands,
        audit_left_out;
    uint64_t node_id, leader_id, leads, has_leader, stopped, disk_mean_us;
    uint64_t withheld, names, holds, waiting, leases, ended, records, snapshotting;
    uint64_t tls_ends, peer_tls_ends; /* in seconds since 1970; 0: there is no TLS */
};
void metrics_read(const struct server *server, struct readings *ret_readings);

/* The sections of INFO for which wanted says true, in INFO's words. */
void metrics_info(const struct server *server, bool (*wanted)(void *context, const char *section),
                  void *context, struct textbuf *out);
/* All of it for Prometheus. Of names' beginnings only those that this user may look at. */
void metrics_expose(const struct server *server, const struct user *user, struct textbuf *out);

/* metric_families.c */
void metrics_expose_families(const struct readings *readings, const struct user *user,
                             struct textbuf *out);

#endif
