/* place.c: is the directory still where it was? An operator, a clean-up job, or a mount on top of it may take it away while the node
 * runs. It would go on writing to files that nobody finds again, and a start would begin with nothing of what was acknowledged: so the
 * node stops as soon as it sees that, and says so. Its lock file tells: another one in its place is another directory's. The directory is looked
 * for under the name that it was started with, as a start would: it may go through a link. */
#include "node/inside.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOOK_US 1000000
#define SHOWN_MAX 200u /* bytes of its name */

/* Any thread's: a disk that hangs takes its time. What cannot be told is no reason to stop. */
static void look(uv_work_t *work)
{
    struct node *node = work->data;
    struct stat ours, there;

    if (fstat(node->recovery.directory.lock, &ours) < 0)
        return;
    if (stat(node->place.lock, &there) < 0)
        node->place.is_lost = errno == ENOENT || errno == ENOTDIR;
    else
        node->place.is_lost = there.st_dev != ours.st_dev || there.st_ino != ours.st_ino;
}

static void on_looked(uv_work_t *work, int status)
{
    struct node *node = work->data;
    size_t looked_for = strlen(node->place.lock) - strlen("/" DIRECTORY_LOCK);
    struct error_text why;

    (void)status;
    if (looked_for > SHOWN_MAX)
        looked_for = SHOWN_MAX;
    node->place.running = false;
    node->place.next_us = node_now_us() + LOOK_US;
    if (node->place.is_lost && !node->closing && replica_role(node->replica) != REPLICA_STOPPED) {
        error_write(&why,
                    "the data directory %.*s, or its file '" DIRECTORY_LOCK
                    "', was removed, moved, or replaced while this node ran: "
                    "what it acknowledged from now on would be lost; put the directory back and "
                    "restart this node, or restore a backup (holdfastd --restore-from), or, in a "
                    "cluster, remove this node and add another one",
                    (int)looked_for, node->place.lock);
        replica_fail(node->replica, why.text);
    }
    node_maybe_finish(node);
}

void place_open(struct node *node, const char *path)
{
    char before[PATH_MAX] = "";

    if (path[0] != '/' && !getcwd(before, sizeof before))
        path = node->recovery.directory.path;
    snprintf(node->place.lock, sizeof node->place.lock, "%s%s%s/" DIRECTORY_LOCK, before,
             before[0] ? "/" : "", path);
}

int64_t place_pump(struct node *node, int64_t now_us)
{
    struct place *place = &node->place;

    if (place->running || node->closing || replica_role(node->replica) == REPLICA_STOPPED)
        return NEVER_US;
    if (now_us < place->next_us)
        return place->next_us;
    place->running = true;
    place->work.data = node;
    INVARIANT(uv_queue_work(node->loop, &place->work, look, on_looked) == 0);
    return NEVER_US; /* its end is a round */
}
