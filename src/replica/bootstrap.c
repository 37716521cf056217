/* bootstrap.c: the first entry of all. It is a function of the members and their incarnations, in the order of their ids: every
 * founder writes the same, whoever asked it and how often, and the cluster's id is its hash. */
#include "base/crc32c.h"
#include "base/sha256.h"
#include "replica/inside.h"

#include <stdlib.h>

#define FIRST_TERM 1

void bootstrap_cluster_id(const void *bytes, size_t size, unsigned char ret_id[REPLICA_CLUSTER])
{
    unsigned char digest[SHA256_SIZE];

    sha256(bytes, size, digest);
    memcpy(ret_id, digest, REPLICA_CLUSTER);
}

static int by_id(const void *a, const void *b)
{
    const struct replica_member *one = a, *other = b;

    return one->id < other->id ? -1 : one->id > other->id;
}

/* Returns the size. */
static size_t write_sorted(const struct replica_config *config,
                           uint8_t ret_bytes[REPLICA_CONFIG_BYTES_MAX])
{
    struct replica_config sorted = *config;

    qsort(sorted.at, (size_t)sorted.count, sizeof *sorted.at, by_id);
    return replica_config_write(&sorted, ret_bytes);
}

void replica_cluster_id(const struct replica_config *config, unsigned char ret_id[REPLICA_CLUSTER])
{
    uint8_t bytes[REPLICA_CONFIG_BYTES_MAX];

    bootstrap_cluster_id(bytes, write_sorted(config, bytes), ret_id);
}

static bool has_itself(const struct replica *replica, const struct replica_config *config)
{
    for (int i = 0; i < config->count; i++)
        if (config->at[i].id == replica->options.id)
            return config->at[i].incarnation == replica->options.incarnation;
    return false;
}

/* Its size; 0: such members cannot be. */
static size_t first_entry(const struct replica *replica, const struct replica_config *config,
                          uint8_t ret_bytes[REPLICA_CONFIG_BYTES_MAX])
{
    struct replica_config again;
    size_t size;

    if (config->count < 1 || config->count > (int)REPLICA_MEMBERS_MAX ||
        !has_itself(replica, config))
        return 0;
    for (int i = 0; i < config->count; i++)
        if (strnlen(config->at[i].address, REPLICA_ADDRESS_MAX + 1) > REPLICA_ADDRESS_MAX)
            return 0;
    size = write_sorted(config, ret_bytes);
    return replica_config_read(ret_bytes, size, &again) ? size : 0;
}

int replica_found(struct replica *replica, const struct replica_config *config, int64_t now_us,
                  struct error_text *err)
{
    uint8_t bytes[REPLICA_CONFIG_BYTES_MAX];
    unsigned char cluster[REPLICA_CLUSTER], *copy;
    size_t size = first_entry(replica, config, bytes);
    struct raft_entry entry = {.term = FIRST_TERM, .type = RAFT_CONFIG, .size = (uint32_t)size};
    const struct raft_id nothing = {0};

    if (size == 0)
        return error_set(
            err, HF_EINVAL,
            "a cluster begins with members that have ids and addresses, each once, and "
            "this node is one of them");
    if (now_us > replica->now_us)
        replica->now_us = now_us;
    bootstrap_cluster_id(bytes, size, cluster);
    if (replica->has_cluster && memcmp(cluster, replica->cluster, REPLICA_CLUSTER) == 0)
        return HF_OK;
    if (is_stopped(replica) || replica->log.last > 0 || install_blocks(replica))
        return error_set(err, HF_EBUSY, "this node belongs to a cluster already");
    if (replica->stored_term == 0 && replica_store_term(replica, FIRST_TERM, 0, err) != HF_OK)
        return HF_EIO;
    entry.sum = crc32c(0, bytes, size);
    entry.chain = raft_chain(0, entry.term, entry.type, entry.size, entry.sum);
    copy = replica_realloc(NULL, size);
    memcpy(copy, bytes, size);
    log_add(&replica->log, &entry, copy);
    /* Committed by definition, and acknowledged when it is durable. */
    if (!replica_boot_raft(replica, &nothing, 1, true))
        return error_set(err, HF_EINVAL, "these members cannot begin a cluster");
    replica_write(replica, 1, 1, 0);
    replica->bootstrap_append = replica->write_number;
    apply_all(replica);
    return HF_OK;
}
