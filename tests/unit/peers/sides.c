#include "sides.h"

uv_loop_t loop;
struct side a, b;
struct peers_tls side_tls;

static uv_timer_t beat; /* so that the loop turns while nothing happens */

static void on_beat(uv_timer_t *timer)
{
    (void)timer;
}

static void on_received(void *context, const struct peers_message *message)
{
    struct side *side = context;
    size_t size = message->size;

    side->received++;
    side->met_before = side->met;
    side->from = message->from;
    side->size = size;
    snprintf(side->from_address, sizeof side->from_address, "%s", message->address);
    for (size_t i = 0; i < size; i++)
        side->sum = side->sum * 31 + ((unsigned char *)message->bytes)[i];
    if (size >= sizeof side->first)
        memcpy(&side->first, message->bytes, sizeof side->first);
    free(message->bytes);
}

static void on_note(void *context, const struct note *note)
{
    struct side *side = context;
    bool has_peer = note->peer && note->peer[0];

    side->notes++;
    snprintf(side->noted, sizeof side->noted, "%s node=%llu%s%s%s%s", note->words,
             (unsigned long long)note->node, has_peer ? " peer=" : "", has_peer ? note->peer : "",
             note->why ? " why=" : "", note->why ? note->why : "");
}

static bool on_met(void *context, const struct peers_node *node)
{
    struct side *side = context;

    side->met++;
    side->met_id = node->id;
    snprintf(side->about, sizeof side->about, "%s", node->about);
    return !side->refuses;
}

static bool on_reached(void *context, const struct peers_node *node)
{
    struct side *side = context;

    side->reached++;
    snprintf(side->reached_about, sizeof side->reached_about, "%s", node->about);
    return !side->avoids;
}

static bool on_meant(void *context, uint64_t id, const char *about)
{
    const struct side *side = context;

    (void)id;
    return !side->means || strcmp(side->means, about) == 0;
}

static void on_opened(void *context, uint64_t id)
{
    struct side *side = context;
    static unsigned first = 77;
    struct iovec piece = {&first, sizeof first};

    if (side->talks)
        assert_int_equal(peers_send(side->peers, id, &piece, 1), HF_OK);
}

void on_done(void *context)
{
    *(bool *)context = true;
}

static void on_ended(void *context, uint64_t id)
{
    struct side *side = context;

    side->ended++;
    side->ended_with = id;
}

struct peers_host side_host(struct side *side)
{
    return (struct peers_host){.context = side,
                               .received = on_received,
                               .note = on_note,
                               .met = on_met,
                               .reached = on_reached,
                               .meant = on_meant,
                               .opened = on_opened,
                               .ended = on_ended};
}

void open_side(struct side *side, uint64_t id, const char *secret, const char *listen,
               const char *about)
{
    open_side_of(side, id, secret, listen, about, "");
}

void open_side_of(struct side *side, uint64_t id, const char *secret, const char *listen,
                  const char *about, const char *cluster)
{
    struct peers_options options = {.id = id,
                                    .address = "10.0.0.1:1",
                                    .listen = listen,
                                    .secret = secret,
                                    .secret_size = strlen(secret),
                                    .about = about,
                                    .cluster = cluster,
                                    .tls = side_tls};
    struct peers_host host = side_host(side);
    struct error_text err = {""};

    memset(side, 0, sizeof *side);
    if (peers_open(&loop, &options, &host, &side->peers, &err) != HF_OK)
        fail_msg("%s", err.text);
    snprintf(side->address, sizeof side->address, "127.0.0.1:%u", peers_port(side->peers));
}

void close_side(struct side *side)
{
    if (!side->peers)
        return;
    peers_close(side->peers, on_done, &side->closed);
    UNTIL(side->closed);
    side->peers = NULL;
}

int set_up(void **state)
{
    (void)state;
    assert_int_equal(uv_loop_init(&loop), 0);
    uv_timer_init(&loop, &beat);
    uv_timer_start(&beat, on_beat, 1, 1);
    open_side(&a, 1, "secret", "127.0.0.1:0", "node1.example:7420");
    open_side(&b, 2, "secret", "127.0.0.1:0", "node2.example:7420");
    return 0;
}

int tear_down(void **state)
{
    (void)state;
    close_side(&a);
    close_side(&b);
    uv_close((uv_handle_t *)&beat, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    return 0;
}

int send_number(struct side *from, const char *address, uint64_t id, unsigned *number)
{
    struct iovec piece = {number, sizeof *number};

    peers_dial_only(from->peers, id, address);
    return peers_send(from->peers, id, &piece, 1);
}

void dial(const struct side *from, uint64_t id, const char *address)
{
    peers_dial(from->peers, id, &address, 1);
}

void connect_sides(void)
{
    static unsigned number;

    UNTIL(send_number(&a, b.address, 2, &number) == HF_OK);
    UNTIL(b.received == 1);
}
