#include "node.h"

#include "base/clock.h"

#include <dirent.h>
#include <ftw.h>
#include <unistd.h>

static const struct replica_member alone[] = {{1, ""}};

void node_init(struct node *node)
{
    const char *below = getenv("HOLDFAST_TEST_DIR");

    memset(node, 0, sizeof *node);
    snprintf(node->home, sizeof node->home, "%s/replica-XXXXXX", below ? below : "/var/tmp");
    assert_non_null(mkdtemp(node->home));
    snprintf(node->path, sizeof node->path, "%s/data", node->home);
    witness_init(&node->witness);
    node->witness.now_us = 0;
    node->options =
        (struct replica_options){.id = 1, .address = "", .members = alone, .member_count = 1};
    node->storage_options = (struct storage_options){.path = node->path};
}

static void on_beat(uv_timer_t *beat)
{
    (void)beat;
}

static void on_done(void *context)
{
    *(bool *)context = true;
}

static void close_loop(struct node *node)
{
    uv_close((uv_handle_t *)&node->beat, NULL);
    uv_run(&node->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&node->loop), 0);
}

static void close_storage(struct node *node)
{
    node->closed = false;
    storage_close(node->storage, on_done, &node->closed);
    NODE_UNTIL(node, node->closed);
    node->storage = NULL;
    close_loop(node);
}

int node_open(struct node *node, struct error_text *err)
{
    struct replica_host host = witness_host(&node->witness);
    int result;

    node->replica = NULL;
    assert_int_equal(uv_loop_init(&node->loop), 0);
    uv_timer_init(&node->loop, &node->beat);
    uv_timer_start(&node->beat, on_beat, 1, 1);
    result = storage_open(&node->loop, &node->storage_options, &node->storage, err);
    if (result != HF_OK) {
        close_loop(node);
        return result;
    }
    result = replica_open(&node->options, storage_io(node->storage), &host, &node->replica, err);
    if (result != HF_OK)
        close_storage(node);
    return result;
}

void node_serve(struct node *node)
{
    struct error_text err = {""};

    if (node_open(node, &err) != HF_OK)
        fail_msg("cannot open: %s", err.text);
    NODE_UNTIL(node, witness_role(&node->witness) == REPLICA_LEADING);
}

void node_turn(struct node *node)
{
    uv_run(&node->loop, UV_RUN_ONCE);
    if (node->replica) {
        replica_pump(node->replica, 0);
        storage_flush(node->storage, false);
    }
}

void node_close(struct node *node)
{
    struct replica *replica = node->replica;

    node->closed = false;
    node->replica = NULL;
    replica_close(replica, on_done, &node->closed);
    NODE_UNTIL(node, node->closed);
    close_storage(node);
}

void node_reopen(struct node *node)
{
    int64_t now_us = node->witness.now_us;

    node_close(node);
    witness_init(&node->witness);
    node->witness.now_us = now_us; /* a clock that stood still goes on doing so */
    node->witness.random = (uint64_t)clock_boot_ns(); /* another process */
    node_serve(node);
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info;
    (void)kind;
    (void)where;
    return remove(path);
}

void node_free(struct node *node)
{
    if (node->replica)
        node_close(node);
    nftw(node->home, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

struct replica_status node_status(const struct node *node)
{
    struct replica_status status;

    replica_status(node->replica, &status);
    return status;
}

uint64_t node_hash(const struct node *node)
{
    return core_hash(replica_table(node->replica));
}

bool node_find_file(const struct node *node, const char *begins, const char *ends,
                    char ret_path[2 * PATH_MAX])
{
    struct dirent **names;
    int count = scandir(node->path, &names, NULL, alphasort);
    bool found = false;

    assert_true(count >= 0);
    for (int i = 0; i < count; i++) {
        size_t length = strlen(names[i]->d_name);

        if (strncmp(names[i]->d_name, begins, strlen(begins)) == 0 && length >= strlen(ends) &&
            strcmp(names[i]->d_name + length - strlen(ends), ends) == 0) {
            snprintf(ret_path, 2 * PATH_MAX, "%s/%s", node->path, names[i]->d_name);
            found = true;
        }
        free(names[i]);
    }
    free(names);
    return found;
}
