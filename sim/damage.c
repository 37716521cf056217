/* damage.c: bits that change in what a disk has acknowledged. The node may refuse to start, or stop, with words that say why, and
 * is then replaced; or it goes on, and then all must be as it was. Of one member at a time, as with directories that are lost: after some time
 * the operator replaces it in any case.
 *
 * One thing no journal can know: the last write of a process that did not stop in order looks, when it is damaged, like one that was
 * cut short. Bits of that one are left alone. */
#include "sim/sim.h"

#include "journal/journal.h"

#include <string.h>

#define MS 1000
#define TRIES 32 /* to find a byte that is not 0: most of a segment is */
#define FOUND_OUT_US_MAX (3000 * MS)

struct choice {
    uint64_t files, at;
    char name[64];
    const unsigned char *bytes;
    size_t size;
};

static void see_file(void *context, const char *name, const unsigned char *bytes, size_t size)
{
    struct choice *choice = context;

    if (size == 0 || choice->files++ != choice->at || strlen(name) >= sizeof choice->name)
        return;
    memcpy(choice->name, name, strlen(name) + 1);
    choice->bytes = bytes;
    choice->size = size;
}

/* False: there is nothing. */
static bool choose_bit(struct sim *sim, const struct node *node, struct choice *choice,
                       uint64_t *ret_bit)
{
    struct choice counted = {.at = UINT64_MAX};

    sim_disk_each(node->store.disk, STORE_DIRECTORY, see_file, &counted);
    *choice = (struct choice){.at = chance_below(&sim->chance, counted.files)};
    sim_disk_each(node->store.disk, STORE_DIRECTORY, see_file, choice);
    if (!choice->bytes)
        return false;
    for (int i = 0; i < TRIES; i++) {
        *ret_bit = chance_below(&sim->chance, 8 * choice->size);
        if (choice->bytes[*ret_bit / 8])
            break;
    }
    return true;
}

static int see_last(void *context, const struct journal_record *record, struct error_text *err)
{
    (void)err;
    *(uint64_t *)context = record->index;
    return HF_OK;
}

/* Would a copy with this bit open, without what was written last and with all that was written before? */
static bool looks_cut_short(struct sim *sim, const struct node *node, const char *name,
                            uint64_t bit)
{
    struct sim_disk *copy = sim_disk_copy(node->store.disk, chance_draw(&sim->chance));
    struct recovery recovery = {.journal = NULL};
    struct error_text err;
    uint64_t last = 0;
    bool opens;

    sim_disk_flip(copy, STORE_DIRECTORY, name, bit);
    opens = recovery_open(&recovery, sim_disk_table(copy), STORE_DIRECTORY, &err) == HF_OK &&
            journal_open(&recovery.directory, 0, see_last, &last, &recovery.journal, &err) == HF_OK;
    recovery_close(&recovery);
    sim_disk_free(copy);
    return opens && last < node->seen.durable_last && last + 1 >= node->store.group_first;
}

void damage_flip(struct sim *sim)
{
    struct node *node = operator_spares(sim);
    struct choice choice;
    uint64_t bit;

    if (!node)
        return;
    if (!choose_bit(sim, node, &choice, &bit) || looks_cut_short(sim, node, choice.name, bit) ||
        !sim_disk_flip(node->store.disk, STORE_DIRECTORY, choice.name, bit)) {
        sim->operator.wiped = 0;
        return;
    }
    sim->counts.flips++;
    node->damaged = true;
    trace_words(&sim->trace, sim->now_us, TRACE_DAMAGED, node->id, choice.name);
    if (node->up && chance_below(&sim->chance, 4)) {
        node_end(sim, node, chance_below(&sim->chance, 2) ? ENDING_KILL : ENDING_POWER);
        sim_at(sim, sim->now_us + chance_between(&sim->chance, 1, 500 * MS), EVENT_RESTART, node, 0,
               NULL);
    }
    faults_replace_soon(sim, node, chance_between(&sim->chance, 1000 * MS, FOUND_OUT_US_MAX));
}

void damage_found(struct sim *sim, struct node *node, const char *words)
{
    if (!words[0])
        sim_wrong(sim, "node %d has a damaged disk, stops, and does not say why", (int)node->id);
    operator_replace(sim, node);
}
