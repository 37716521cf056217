#include "sim/network.h"

#include "sim/sim.h"

#include <stdlib.h>
#include <string.h>

#define NOTICED_US 200000 /* until a side knows that a connection has broken, at the most */
#define AGAIN_US 100000   /* and until there is another, */

static struct link *link_of(struct sim *sim, uint64_t from, uint64_t to)
{
    return &sim->network.links[from - 1][to - 1];
}

static void pair(uint64_t a, uint64_t b, uint64_t *ret_low, uint64_t *ret_high)
{
    *ret_low = (a < b ? a : b) - 1;
    *ret_high = (a < b ? b : a) - 1;
}

void network_begin(struct sim *sim)
{
    sim->network.chance = chance_new(sim->seed, 2);
    for (int i = 0; i < NETWORK_NODES; i++)
        for (int j = 0; j < NETWORK_NODES; j++)
            sim->network.connection[i][j] = 1;
}

bool network_is_cut(const struct sim *sim, uint64_t from, uint64_t to)
{
    return sim->network.links[from - 1][to - 1].cut;
}

/* Both sides learn of it, each in its time; what is under way is lost. */
static void break_connection(struct sim *sim, uint64_t a, uint64_t b, int64_t noticed_us)
{
    struct network *network = &sim->network;
    uint64_t low, high;
    int64_t first_us, second_us;

    pair(a, b, &low, &high);
    if (network->again_us[low][high] > sim->now_us)
        return;
    first_us = sim->now_us + chance_between(&network->chance, 100, noticed_us);
    second_us = sim->now_us + chance_between(&network->chance, 100, noticed_us);
    network->connection[low][high]++;
    network->again_us[low][high] = (first_us > second_us ? first_us : second_us) +
                                   chance_between(&network->chance, 100, AGAIN_US);
    sim_at(sim, first_us, EVENT_LINK_DOWN, sim_node(sim, a), b, NULL);
    sim_at(sim, second_us, EVENT_LINK_DOWN, sim_node(sim, b), a, NULL);
    sim->counts.breaks++;
    trace(&sim->trace, sim->now_us, TRACE_LINK, a, b, 0, 0);
}

static int64_t delay_us(struct sim *sim)
{
    struct chance *chance = &sim->network.chance;
    const struct swarm *swarm = &sim->swarm;

    if (sim->healing)
        return chance_between(chance, 50, 500);
    if (chance_below(chance, 64) == 0)
        return chance_between(chance, swarm->delay_us, swarm->delay_max_us);
    return chance_between(chance, swarm->delay_us / 2, swarm->delay_us);
}

static struct packet *pack(const struct node *from, const struct iovec *pieces, unsigned count)
{
    size_t size = 0;
    struct packet *packet;

    for (unsigned i = 0; i < count; i++)
        size += pieces[i].iov_len;
    packet = malloc(sizeof *packet + size);
    INVARIANT(packet != NULL);
    *packet =
        (struct packet){.from = from->id, .incarnation = from->incarnation, .size = (uint32_t)size};
    size = 0;
    for (unsigned i = 0; i < count; i++) {
        if (pieces[i].iov_len)
            memcpy(packet->bytes + size, pieces[i].iov_base, pieces[i].iov_len);
        size += pieces[i].iov_len;
    }
    return packet;
}

static void send_datagram(struct sim *sim, uint64_t from, uint64_t to, struct packet *packet)
{
    struct chance *chance = &sim->network.chance;
    int copies = 1;

    if (link_of(sim, from, to)->cut || (!sim->healing && chance_happens(chance, sim->swarm.loss))) {
        free(packet);
        return;
    }
    if (!sim->healing && chance_happens(chance, sim->swarm.repeat))
        copies = 2;
    for (; copies > 1; copies--) {
        struct packet *copy = malloc(sizeof *copy + packet->size);

        INVARIANT(copy != NULL);
        memcpy(copy, packet, sizeof *copy + packet->size);
        sim_at(sim, sim->now_us + delay_us(sim), EVENT_MESSAGE, sim_node(sim, to), from, copy);
    }
    sim_at(sim, sim->now_us + delay_us(sim), EVENT_MESSAGE, sim_node(sim, to), from, packet);
}

static void send_in_order(struct sim *sim, uint64_t from, uint64_t to, struct packet *packet)
{
    struct network *network = &sim->network;
    struct link *link = link_of(sim, from, to);
    uint64_t low, high;
    int64_t at_us;

    pair(from, to, &low, &high);
    if (network->again_us[low][high] > sim->now_us) {
        free(packet);
        return;
    }
    if (link->cut || (!sim->healing && chance_happens(&network->chance, sim->swarm.loss))) {
        free(packet);
        break_connection(sim, from, to, link->cut ? 4 * NOTICED_US : NOTICED_US);
        return;
    }
    at_us = sim->now_us + delay_us(sim);
    if (at_us <= link->last_us)
        at_us = link->last_us + 1;
    link->last_us = at_us;
    packet->connection = network->connection[low][high];
    sim_at(sim, at_us, EVENT_MESSAGE, sim_node(sim, to), from, packet);
}

void network_send(struct sim *sim, struct node *from, uint64_t to, const struct iovec *pieces,
                  unsigned count)
{
    struct node *node = sim_node(sim, to);
    struct packet *packet;

    if (!node || node == from)
        return;
    packet = pack(from, pieces, count);
    trace(&sim->trace, sim->now_us, TRACE_SENT, from->id, to, packet->size,
          packet->size > 1 ? packet->bytes[1] : 0);
    if (sim->swarm.datagrams)
        send_datagram(sim, from->id, to, packet);
    else
        send_in_order(sim, from->id, to, packet);
}

bool network_came(struct sim *sim, const struct node *to, const struct packet *packet)
{
    uint64_t low, high;

    pair(packet->from, to->id, &low, &high);
    return packet->connection == 0 || packet->connection == sim->network.connection[low][high];
}

void network_ended(struct sim *sim, const struct node *node, bool at_once)
{
    if (sim->swarm.datagrams && !at_once)
        return;
    for (uint64_t id = 1; id <= SIM_NODES; id++)
        if (id != node->id && sim_node(sim, id)->exists)
            break_connection(sim, node->id, id, at_once ? 2000 : 4 * NOTICED_US);
}

/* Two sides, or single links, or one node; in both directions or in one. */
void network_cut(struct sim *sim)
{
    struct chance *chance = &sim->network.chance;
    uint64_t side = chance_draw(chance), kind = chance_below(chance, 3),
             alone = chance_below(chance, SIM_NODES);
    bool one_way = chance_happens(chance, sim->swarm.one_way);
    uint64_t cuts = 0;

    for (uint64_t i = 0; i < NETWORK_NODES; i++)
        for (uint64_t j = 0; j < NETWORK_NODES; j++) {
            bool cut = i != j;

            if (kind == 0)
                cut = cut && ((side >> i ^ side >> j) & 1);
            else if (kind == 1)
                cut = cut && (i == alone || j == alone);
            else
                cut = cut && chance_below(chance, 4) == 0;
            if (one_way && cut)
                cut = kind == 0 ? side >> i & 1 : kind == 1 ? i == alone : cut;
            if (kind == 2 && !one_way && i > j)
                cut = sim->network.links[j][i].cut;
            sim->network.links[i][j].cut = cut;
            cuts += cut;
        }
    sim->counts.cuts++;
    trace(&sim->trace, sim->now_us, TRACE_CUT, cuts, 0, 0, 0);
}

void network_isolate(struct sim *sim, uint64_t id)
{
    for (uint64_t i = 0; i < NETWORK_NODES; i++)
        for (uint64_t j = 0; j < NETWORK_NODES; j++)
            sim->network.links[i][j].cut = i != j && (i == id - 1 || j == id - 1);
    sim->counts.cuts++;
    trace(&sim->trace, sim->now_us, TRACE_CUT, NETWORK_NODES, 0, 0, 0);
}

void network_heal(struct sim *sim)
{
    for (int i = 0; i < NETWORK_NODES; i++)
        for (int j = 0; j < NETWORK_NODES; j++)
            sim->network.links[i][j].cut = false;
    trace(&sim->trace, sim->now_us, TRACE_CUT, 0, 0, 0, 0);
}
