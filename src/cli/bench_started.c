/* bench_started.c: clients that are started operations, as many to a thread as there are. */
#include "base/clock.h"
#include "cli/bench_load.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>

#define LOOK_MS 100
#define LOOP_CYCLES 20000

/* ---- queues ---------------------------------------------------------------------------------- */

void queue_begin(struct queue *queue)
{
    queue->first = NULL;
    queue->end = &queue->first;
}

static void queue_push(struct queue *queue, struct client *client)
{
    client->next = NULL;
    *queue->end = client;
    queue->end = &client->next;
}

static struct client *queue_pop(struct queue *queue)
{
    struct client *client = queue->first;

    queue->first = client->next;
    if (!queue->first)
        queue->end = &queue->first;
    return client;
}

/* ---- a client -------------------------------------------------------------------------------- */

static void on_acquired(hf_op *op, int result, void *arg);
static void on_released(hf_op *op, int result, void *arg);

static void end(struct client *client)
{
    client->state = CLIENT_ENDED;
    client->driver->live--;
}

static void rest(struct client *client, int64_t now_ns)
{
    client->state = CLIENT_RESTING;
    client->due_ns = now_ns + BENCH_REST_MS * INT64_C(1000000);
    queue_push(&client->driver->resting, client);
}

static void begin(struct client *client, int64_t now_ns)
{
    struct driver *driver = client->driver;
    hf_options options = HF_OPTIONS_INIT;
    int result;

    if (load_is_over(driver->load, now_ns)) {
        end(client);
        return;
    }
    client_choose(client);
    client->state = CLIENT_ACQUIRING;
    client->began_ns = clock_boot_ns();
    if (driver->load->is_empty) {
        queue_push(&driver->granted, client);
        return;
    }
    options.owner = "holdfast bench";
    result = hf_acquire_start(driver->store, client->name->text, &options, on_acquired, client,
                              &client->op);
    if (result != HF_OK) {
        driver_note_failure(driver, result, hf_error());
        rest(client, now_ns);
    }
}

static void acquired(struct client *client, hf_lock *lock, uint64_t token)
{
    struct driver *driver = client->driver;
    int64_t now_ns = clock_boot_ns();

    client->inside.lock = lock;
    client->inside.token = token;
    client->state = CLIENT_INSIDE;
    client_granted(client, now_ns);
    client->due_ns = now_ns + driver->load->plan->hold_ms * 1000000;
    /* Also without a hold it stays inside until the loop comes round: whoever is granted the same name meanwhile is seen. */
    queue_push(&driver->inside, client);
}

static void on_acquired(hf_op *op, int result, void *arg)
{
    struct client *client = arg;
    hf_lock *lock = result == HF_OK ? hf_op_take_lock(op) : NULL;

    client->op = NULL;
    if (lock) {
        acquired(client, lock, hf_lock_token(lock));
    } else if (result == HF_ECANCELED && client->driver->is_stopping) {
        end(client);
    } else {
        driver_note_failure(client->driver, result, hf_op_error(op));
        rest(client, clock_boot_ns());
    }
}

static void released(struct client *client)
{
    int64_t now_ns = clock_boot_ns();

    client_released(client, now_ns);
    begin(client, now_ns);
}

static void on_released(hf_op *op, int result, void *arg)
{
    struct client *client = arg;

    if (result == HF_OK) {
        released(client);
    } else {
        driver_note_failure(client->driver, result, hf_op_error(op));
        rest(client, clock_boot_ns());
    }
}

static void leave(struct client *client, int64_t now_ns)
{
    struct driver *driver = client->driver;
    hf_lock *lock = client->inside.lock;
    int result;

    client->state = CLIENT_RELEASING;
    bench_name_leave(client->name, &client->inside, clock_boot_ns());
    if (driver->load->is_empty) {
        queue_push(&driver->released, client);
        return;
    }
    if (hf_release_start(lock, on_released, client, NULL) == HF_OK)
        return;
    /* Out of memory or threads: it is still ours, and is given up all the same. */
    driver_note_failure(driver, HF_ENOMEM, hf_error());
    result = hf_release(lock);
    if (result != HF_OK)
        driver_note_failure(driver, result, hf_error());
    rest(client, now_ns);
}

/* ---- the thread -------------------------------------------------------------------------------- */

static void stop(struct driver *driver)
{
    int64_t now_ns = clock_boot_ns();

    driver->is_stopping = true;
    for (uint32_t i = 0; i < driver->client_count; i++) {
        struct client *client = &driver->clients[i];

        if (client->state != CLIENT_ACQUIRING || !client->op)
            continue;
        driver_note_unfinished(driver, client, now_ns);
        hf_op_cancel(client->op);
    }
}

static bool is_due(const struct driver *driver, const struct queue *queue, int64_t now_ns)
{
    return queue->first && (driver->is_stopping || queue->first->due_ns <= now_ns);
}

static void run_queues(struct driver *driver)
{
    int64_t now_ns = clock_boot_ns();

    if (!driver->is_stopping && load_is_over(driver->load, now_ns))
        stop(driver);
    while (is_due(driver, &driver->inside, now_ns))
        leave(queue_pop(&driver->inside), now_ns);
    while (is_due(driver, &driver->resting, now_ns))
        begin(queue_pop(&driver->resting), now_ns);
}

static int64_t earlier(const struct queue *queue, int64_t then_ns)
{
    return queue->first && queue->first->due_ns < then_ns ? queue->first->due_ns : then_ns;
}

static void wait_for_news(struct driver *driver)
{
    const struct bench_load *load = driver->load;
    int64_t now_ns = clock_boot_ns(), then_ns = now_ns + LOOK_MS * INT64_C(1000000);
    struct timespec left = {0};
    struct pollfd fds[] = {{.fd = driver->fd, .events = POLLIN},
                           {.fd = driver->is_stopping ? -1 : load->stop_fd, .events = POLLIN}};

    then_ns = earlier(&driver->inside, earlier(&driver->resting, then_ns));
    if (!driver->is_stopping && load->until_ns < then_ns)
        then_ns = load->until_ns;
    if (then_ns > now_ns)
        left.tv_nsec = then_ns - now_ns;
    ppoll(fds, 2, &left, NULL);
}

void *bench_drive_started(void *arg)
{
    struct driver *driver = arg;
    int64_t now_ns = clock_boot_ns();

    for (uint32_t i = 0; i < driver->client_count; i++)
        begin(&driver->clients[i], now_ns);
    while (driver->live > 0) {
        wait_for_news(driver);
        hf_dispatch(driver->store);
        run_queues(driver);
    }
    atomic_fetch_sub(&driver->load->running, 1);
    return NULL;
}

/* ---- what it costs itself -------------------------------------------------------------------- */

static int64_t thread_cpu_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void spin(struct driver *driver)
{
    while (driver->granted.first)
        acquired(queue_pop(&driver->granted), NULL, ++driver->last_token);
    wait_for_news(driver);
    run_queues(driver);
    while (driver->released.first)
        released(queue_pop(&driver->released));
    wait_for_news(driver);
}

double bench_loop_cost_ns(void)
{
    static const struct bench_plan plan = {0};
    struct bench_target target = {.handle_count = 1};
    struct bench_load *load = NULL;
    struct driver *driver;
    int64_t began_ns;
    double cost_ns = 0;

    if (bench_names_begin(&target.names, "bench", 64))
        load = load_new(&plan, &target, BENCH_SPREAD, 1);
    if (load) {
        load->is_empty = true;
        load->until_ns = INT64_MAX;
        driver = load->drivers;
        driver_begin(driver, load, 0);
        eventfd_write(load->stop_fd, 1); /* as if there were always news */
        begin(driver->clients, clock_boot_ns());
        began_ns = thread_cpu_ns();
        for (int i = 0; i < LOOP_CYCLES; i++)
            spin(driver);
        cost_ns = (double)(thread_cpu_ns() - began_ns) / LOOP_CYCLES;
        load_free(load);
    }
    bench_names_end(&target.names);
    return cost_ns;
}
