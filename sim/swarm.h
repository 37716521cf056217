/* swarm.h: what a simulation is like, drawn from its seed: how many nodes, which kinds of faults, and how much of each.
 *
 * Each seed has only some kinds (swarm testing): what one kind would keep from happening, happens where it is absent.
 *
 * Faults that are legal: everything that a network does; crashes, with any part of what was not yet durable lost, in its order;
 * pauses; clocks that tick up to 0.45 % too fast or too slow, stand still for a while, and begin anew with a process; disks that
 * are slow, full for a while or fail (the node stops, and is started again when an operator has mended it); a directory that is lost, or a
 * bit of it that changes, of one member at a time, which is then removed and added anew; a directory that is an older copy, where nothing
 * hangs on it (old_copies.c). What no fault does: lie about what is durable, lose a majority of the
 * directories, or make a client's clock stand still. */
#ifndef SIM_SWARM_H
#define SIM_SWARM_H

#include <stdbool.h>
#include <stdint.h>

/* Shares are of 10,000; the others happen once in so many milliseconds on average, 0: never. */
struct swarm {
    int nodes;        /* at first: 1, 3 or 5 */
    int64_t fault_ms; /* how long the faults last */
    int64_t grow_ms;  /* the operator looks so often, */
    bool grows;       /* and a lone voter gets two more, */
    bool stays_small; /* or one that comes and goes all the time */
    bool stale;       /* who is cut off while its clock stands still goes on leading */
    bool restless;    /* hardly anybody leads for long, and entries travel one by one */
    uint32_t crash_ms, pause_ms, cut_ms, clock_ms, disk_ms, wipe_ms, flip_ms, change_ms,
        transfer_ms, move_ms, copy_ms;
    uint32_t kills;     /* share of crashes that only end the process: its peers know at once */
    uint32_t crash_all; /* share of crashes in which all machines lose their power */
    uint32_t
        versions; /* share of processes that are started with the next version; 0: there is none */
    uint32_t crash_after_change;    /* share of changes of members, */
    uint32_t crash_after_election;  /* and of candidacies, soon after which somebody crashes */
    uint32_t crash_elected;         /* share of those that have just been elected, that crash */
    uint32_t crash_voted;           /* and of those that have voted for somebody else, */
    int64_t down_us;                /* for so long at the most; 0: as others */
    uint32_t one_way;               /* share of cuts */
    uint32_t loss;                  /* of messages: the connection breaks */
    uint32_t repeat;                /* of messages come twice; only where order is not kept */
    bool datagrams;                 /* no connections: any order, any loss */
    int64_t delay_us, delay_max_us; /* of most messages, and of some */
    uint32_t term_crash;            /* share of writes of term and vote that are interrupted */
    int64_t disk_us, disk_slow_us;
    bool disk_fails, disks_differ; /* some are much slower than others */
    int64_t round_us;              /* of a node's loop, at the most */
    uint64_t snapshot_bytes, memory_bytes;
    uint32_t snapshot_trailing, window, in_flight_bytes;
    int clients, names;
    int64_t think_us;    /* of a client between two locks, on average */
    int64_t patience_us; /* until it gives up a connection on which no answer comes */
    int64_t ttl_ms, ttl_max_ms;
    uint32_t client_loss; /* share of requests and answers: the connection breaks */
    uint32_t once;        /* share of locks that are claims of once-records */
    uint32_t client_pause, client_death, client_cancel, client_careless; /* shares of locks */
    uint32_t holds; /* that each user may have at a time, of whom there are a few; 0: no limits */
    uint32_t client_end; /* share of locks that end with their lease */
    uint32_t beside;     /* share of what clients ask for that is no lock, */
    uint32_t breaks;     /* and of that, of breaks */
};

void swarm_draw(uint64_t seed, struct swarm *ret_swarm);

#endif
