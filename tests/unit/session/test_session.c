/* test_session.c: sessions without sockets, a log or a clock: this test submits, applies and leads by hand. */
#include "session/session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SUBMITTED_MAX 8

/* ---- an owner ------------------------------------------------------------------------------------ */

struct owner {
    struct sessions sessions;
    struct core *core;
    uint64_t leader; /* another node that is known to lead; 0: none */
    bool full;       /* the batch has no room */
    struct {
        enum core_op op;
        void *request;
    } submitted[SUBMITTED_MAX];
    int count;
    int unused; /* sessions that were freed */
};

struct client {
    struct session session;
    bool ready;
};

static int on_submit(void *context, const struct core_command *command, void *request)
{
    struct owner *owner = context;

    if (owner->full)
        return HF_EBUSY;
    if (owner->sessions.role != REPLICA_LEADING)
        return HF_EUNREACH;
    assert_true(owner->count < SUBMITTED_MAX);
    owner->submitted[owner->count].op = command->op;
    owner->submitted[owner->count++].request = request;
    return HF_OK;
}

static const struct core *on_table(void *context)
{
    const struct owner *owner = context;

    return owner->core;
}

static bool on_leader_address(void *context, char *ret_text, size_t size)
{
    const struct owner *owner = context;

    snprintf(ret_text, size, "127.0.0.1:%d", (int)owner->leader);
    return owner->leader != 0;
}

static const char *on_why_no_leader(void *context)
{
    (void)context;
    return "nobody leads";
}

static void on_dirty(struct session *session)
{
    (void)session;
}

static void on_answered(struct session *session, bool waited)
{
    LIST_ENTRY(session, struct client, session)->ready |= waited || session->value;
}

static void on_unused(struct session *session)
{
    struct owner *owner = LIST_ENTRY(session->sessions, struct owner, sessions);

    owner->unused++;
    session_free(session);
    free(LIST_ENTRY(session, struct client, session));
}

static int set_up(void **state)
{
    static const struct sessions_host host = {.submit = on_submit,
                                              .table = on_table,
                                              .leader_address = on_leader_address,
                                              .why_no_leader = on_why_no_leader,
                                              .dirty = on_dirty,
                                              .answered = on_answered,
                                              .unused = on_unused};
    static const unsigned char seed[SIPHASH_SEED] = {0};
    struct owner *owner = calloc(1, sizeof *owner);

    assert_non_null(owner);
    owner->core = core_new(seed);
    sessions_open(&owner->sessions, &host, owner, seed);
    owner->sessions.max_pipeline = 100;
    owner->sessions.max_output_bytes = 1 << 20;
    sessions_role(&owner->sessions, REPLICA_LEADING, 1);
    *state = owner;
    return 0;
}

static int tear_down(void **state)
{
    struct owner *owner = *state;

    LIST_EACH_SAFE(node, &owner->sessions.all)
    {
        struct session *session = LIST_ENTRY(node, struct session, node);

        session_close(session);
        session_unref(session);
    }
    sessions_free(&owner->sessions);
    core_free(owner->core);
    free(owner);
    return 0;
}

static struct client *new_client(struct owner *owner)
{
    static const struct resp_limits limits = {.blob_max = 4096, .value_max = 4096, .nodes_max = 64};
    struct client *client = calloc(1, sizeof *client);

    assert_non_null(client);
    client->session.authenticated = client->session.resp3 = true;
    session_open(&owner->sessions, &client->session, resp_reader_new(&limits));
    return client;
}

/* Words with blanks between them, as a client may type them. */
static void say(struct client *client, const char *line)
{
    struct resp_reader *reader = client->session.reader;
    struct resp_writer writer = {0};
    struct error_text err;
    char copy[256], *rest = copy, *word;
    size_t count = 1, size;
    char *room;

    snprintf(copy, sizeof copy, "%s", line);
    for (const char *at = line; *at; at++)
        count += *at == ' ';
    resp_write_array(&writer, count);
    while ((word = strsep(&rest, " ")))
        resp_write_text(&writer, word);
    room = resp_reader_room(reader, writer.size, &size);
    memcpy(room, writer.bytes, writer.size);
    resp_reader_filled(reader, writer.size);
    resp_writer_free(&writer);
    assert_int_equal(session_go_on(&client->session, &err), HF_OK);
}

/* What it has been told since, and no more than that. */
static void expect(struct client *client, const char *text)
{
    struct resp_writer *out = &client->session.out;
    char told[1024];

    snprintf(told, sizeof told, "%.*s", (int)out->size, out->size ? out->bytes : "");
    assert_string_equal(told, text);
    resp_writer_clear(out);
}

static void answer(struct owner *owner, int index, enum core_answer what, uint64_t number)
{
    struct core_effect effect = {
        .kind = EFFECT_ANSWER, .answer = what, .number = number, .ticket = number};

    sessions_effect(&owner->sessions, owner->submitted[index].request, &effect);
}

/* A client that is blocked at this place. */
static struct client *blocked_at(struct owner *owner, uint64_t ticket)
{
    struct client *client = new_client(owner);

    say(client, "ACQUIRE name lease WAIT 5000");
    answer(owner, owner->count - 1, ANSWER_QUEUED, ticket);
    assert_int_equal(owner->sessions.blocked_count, 1);
    return client;
}

static void granted(struct owner *owner, uint64_t ticket, uint64_t token)
{
    struct core_effect effect = {.kind = EFFECT_GRANTED, .ticket = ticket, .number = token};

    sessions_effect(&owner->sessions, NULL, &effect);
}

/* ---- the order of answers ------------------------------------------------------------------------- */

static void what_is_wrong_is_refused_in_its_turn(void **state)
{
    struct owner *owner = *state;
    struct client *client = new_client(owner);
    struct error_text err;

    say(client, "ACQUIRE name lease");
    say(client, "ACQUIRE name");
    expect(client, "");
    answer(owner, 0, ANSWER_TOKEN, 7);
    assert_true(client->ready); /* the second one waits for its turn */
    session_go_on(&client->session, &err);
    expect(client,
           ":7\r\n-ERR wrong number of arguments for 'ACQUIRE': ACQUIRE name lease [TTL ms] [WAIT "
           "ms] [PUSH] [SHARED] [PERMITS n] [DELAY ms] [OWNER text]\r\n");
}

static void nothing_begins_behind_one_that_waits(void **state)
{
    struct owner *owner = *state;
    struct client *client = blocked_at(owner, 3);
    struct error_text err;

    say(client, "RELEASE other lease");
    assert_int_equal(owner->count, 1);
    granted(owner, 3, 8);
    assert_true(client->ready);
    session_go_on(&client->session, &err);
    assert_int_equal(owner->count, 2);
    assert_int_equal(owner->submitted[1].op, CORE_RELEASE);
    answer(owner, 1, ANSWER_NUMBER, 1);
    expect(client, ":8\r\n:1\r\n");
}

static void a_full_batch_is_tried_again(void **state)
{
    struct owner *owner = *state;
    struct client *client = new_client(owner);
    struct error_text err;

    owner->full = true;
    say(client, "FLOOR 5");
    assert_true(client->session.starved);
    owner->full = false;
    session_go_on(&client->session, &err);
    answer(owner, 0, ANSWER_NUMBER, 6);
    expect(client, ":6\r\n");
}

/* ---- leaders come and go --------------------------------------------------------------------------- */

static void who_is_blocked_is_sent_to_the_next_leader(void **state)
{
    struct owner *owner = *state;
    struct client *client = blocked_at(owner, 3);

    sessions_role(&owner->sessions, REPLICA_FOLLOWING, 1000);
    sessions_look(&owner->sessions, 1500);
    granted(owner, 3, 8); /* in the next leader's term */
    expect(client, "");
    owner->leader = 2;
    sessions_look(&owner->sessions, 1600);
    expect(client, "-MOVED 0 127.0.0.1:2\r\n");
    assert_int_equal(owner->sessions.blocked_count, 0);
}

static void who_is_blocked_waits_a_second_for_a_leader(void **state)
{
    struct owner *owner = *state;
    struct client *client = blocked_at(owner, 3);

    sessions_role(&owner->sessions, REPLICA_FOLLOWING, 0);
    sessions_look(&owner->sessions, 999);
    expect(client, "");
    sessions_look(&owner->sessions, 1000);
    expect(client, "-TRYAGAIN nobody leads\r\n");
}

static void who_is_blocked_comes_anew_if_the_same_node_leads_again(void **state)
{
    struct owner *owner = *state;
    struct client *client = blocked_at(owner, 3);

    sessions_role(&owner->sessions, REPLICA_FOLLOWING, 100);
    sessions_role(&owner->sessions, REPLICA_LEADING, 200);
    expect(client, "-TRYAGAIN this node did not lead for a moment\r\n");
}

static void who_waits_for_a_push_is_let_go(void **state)
{
    struct owner *owner = *state;
    struct client *client = new_client(owner), *other = new_client(owner);

    say(client, "ACQUIRE name lease PUSH");
    answer(owner, 0, ANSWER_QUEUED, 3);
    expect(client, "+QUEUED\r\n");
    sessions_role(&owner->sessions, REPLICA_FOLLOWING, 100);
    owner->leader = 2;
    sessions_look(&owner->sessions, 101);
    assert_true(client->session.ending);
    assert_false(other->session.ending);
    say(other, "FLOOR 5");
    expect(other, "-MOVED 0 127.0.0.1:2\r\n");
}

static void a_node_that_stops_says_why(void **state)
{
    struct owner *owner = *state;
    struct client *client = blocked_at(owner, 3);

    sessions_stopped(&owner->sessions, "the disk is gone");
    expect(client, "-STOPPED the disk is gone\r\n");
}

/* ---- clients go ------------------------------------------------------------------------------------- */

static void who_goes_gives_up_its_place(void **state)
{
    struct owner *owner = *state;
    struct client *client = blocked_at(owner, 3);

    session_close(&client->session);
    session_unref(&client->session);
    owner->full = true;
    sessions_leave(&owner->sessions);
    assert_int_equal(owner->unused, 0);
    owner->full = false;
    sessions_leave(&owner->sessions);
    assert_int_equal(owner->count, 2);
    assert_int_equal(owner->submitted[1].op, CORE_LEAVE);
    assert_int_equal(owner->unused, 1);
    granted(owner, 3, 8); /* nobody is told */
}

/* Its place is made after it has gone. */
static void who_has_gone_gives_up_its_place(void **state)
{
    struct owner *owner = *state;
    struct client *client = new_client(owner);

    say(client, "ACQUIRE name lease WAIT 5000");
    session_close(&client->session);
    session_unref(&client->session);
    answer(owner, 0, ANSWER_QUEUED, 3);
    sessions_leave(&owner->sessions);
    assert_int_equal(owner->submitted[1].op, CORE_LEAVE);
    assert_int_equal(owner->unused, 1);
}

static void the_later_one_with_a_lease_gets_the_answer(void **state)
{
    struct owner *owner = *state;
    struct client *first = blocked_at(owner, 3), *second = new_client(owner);

    say(second, "ACQUIRE name lease WAIT 5000");
    answer(owner, 1, ANSWER_QUEUED, 3);
    expect(first, "-REPLACED another connection waits with this lease\r\n");
    granted(owner, 3, 8);
    expect(second, ":8\r\n");
}

/* Its first connection is broken, and this node does not know that yet. */
static void who_comes_back_for_its_place_is_told(void **state)
{
    struct owner *owner = *state;
    struct client *first = new_client(owner), *second = new_client(owner);

    say(first, "ACQUIRE name lease PUSH");
    answer(owner, 0, ANSWER_QUEUED, 3);
    say(second, "ACQUIRE name lease PUSH");
    answer(owner, 1, ANSWER_QUEUED, 3);
    expect(first, "+QUEUED\r\n");
    expect(second, "+QUEUED\r\n");
    session_close(&first->session);
    session_unref(&first->session);
    granted(owner, 3, 8);
    expect(second, ">4\r\n$7\r\ngranted\r\n$0\r\n\r\n$0\r\n\r\n:8\r\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_wrong_is_refused_in_its_turn, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nothing_begins_behind_one_that_waits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_full_batch_is_tried_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_is_blocked_is_sent_to_the_next_leader, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(who_is_blocked_waits_a_second_for_a_leader, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(who_is_blocked_comes_anew_if_the_same_node_leads_again,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_waits_for_a_push_is_let_go, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_node_that_stops_says_why, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_goes_gives_up_its_place, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_has_gone_gives_up_its_place, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_later_one_with_a_lease_gets_the_answer, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(who_comes_back_for_its_place_is_told, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
