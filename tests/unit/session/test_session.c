/* test_session.c: sessions without sockets, a log or a clock: this test submits, applies and leads by hand. */
#include "base/sequencer.h"
#include "session/commands.h"
#include "session/rights.h"
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
    struct core_command acquired; /* the last ACQUIRE; of its texts, only how long they are */
    int unused;                   /* sessions that were freed */
    char denied[64];              /* the name of what was denied last */
};

struct client {
    struct session session;
    bool ready;
    int went; /* what session_go_on said last */
};

static int on_submit(void *context, const struct core_command *command, void *request)
{
    struct owner *owner = context;

    if (owner->full)
        return HF_EBUSY;
    if (owner->sessions.role != REPLICA_LEADING)
        return HF_EUNREACH;
    assert_true(owner->count < SUBMITTED_MAX);
    if (command->op == CORE_ACQUIRE)
        owner->acquired = *command;
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
    LIST_ENTRY(session, struct client, session)->ready |= waited || session->input == INPUT_VALUE;
}

/* Which name it was about. */
static void on_denied(struct session *session, const struct denied *denied)
{
    struct owner *owner = LIST_ENTRY(session->sessions, struct owner, sessions);

    snprintf(owner->denied, sizeof owner->denied, "%.*s", (int)denied->name.size,
             denied->name.bytes ? denied->name.bytes : "");
}

static void on_unused(struct session *session)
{
    struct owner *owner = LIST_ENTRY(session->sessions, struct owner, sessions);

    owner->unused++;
    session_free(session);
    free(LIST_ENTRY(session, struct client, session));
}

/* The owner's table. */
static const struct command subscribe = {.name = "SUBSCRIBE",
                                         .arity = -2,
                                         .run = command_subscribe,
                                         .traits = COMMAND_LOGGED | COMMAND_SUBSCRIBED,
                                         .right = RIGHT_LOOK,
                                         .names = NAMES_ALL,
                                         .syntax = "name [name ...]"};

static int set_up(void **state)
{
    static const struct sessions_host host = {.submit = on_submit,
                                              .table = on_table,
                                              .leader_address = on_leader_address,
                                              .why_no_leader = on_why_no_leader,
                                              .dirty = on_dirty,
                                              .answered = on_answered,
                                              .unused = on_unused,
                                              .denied = on_denied};
    static const unsigned char seed[SIPHASH_SEED] = {0};
    struct owner *owner = calloc(1, sizeof *owner);

    assert_non_null(owner);
    owner->core = core_new(seed);
    sessions_open(&owner->sessions, &host, owner, seed);
    owner->sessions.owner_commands = &subscribe;
    owner->sessions.owner_command_count = 1;
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
    client->session.user = &user_of_all;
    client->session.resp3 = true;
    session_open(&owner->sessions, &client->session, &resp_protocol, resp_reader_new(&limits));
    return client;
}

/* Words with blanks between them, as a client may type them. */
static void say(struct client *client, const char *line)
{
    struct resp_reader *reader = client->session.reader;
    struct resp_writer writer = {0};
    struct error_text err;
    char copy[HF_SEQUENCER_MAX + 8], *rest = copy, *word;
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
    client->went = session_go_on(&client->session, &err);
    assert_true(client->went >= HF_OK);
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
    assert_int_equal(client->went, SESSION_FULL);
    owner->full = false;
    assert_int_equal(session_go_on(&client->session, &err), HF_OK);
    answer(owner, 0, ANSWER_NUMBER, 6);
    expect(client, ":6\r\n");
}

/* Names that are used, so that a page of them is long. */
static void fill_table(struct owner *owner, int names)
{
    struct core_packer packer = {0};
    char name[16], lease[16];

    for (int i = 0; i < names; i++) {
        size_t size = (size_t)snprintf(name, sizeof name, "name %d", i);
        size_t lease_size = (size_t)snprintf(lease, sizeof lease, "lease %d", i);
        struct core_command command = {.op = CORE_ACQUIRE,
                                       .name = {name, size},
                                       .lease = {lease, lease_size},
                                       .ttl_ms = 60000};

        core_pack(&packer, &command);
    }
    core_packer_finish(&packer, 0, false, 0, 0);
    assert_int_equal(core_apply(owner->core, packer.bytes, packer.size, NULL, NULL), HF_OK);
    core_packer_free(&packer);
}

/* The place of what is read has been reached in the log. */
static void read_at(struct owner *owner, int index)
{
    struct core_effect effect = {.kind = EFFECT_READ};

    sessions_effect(&owner->sessions, owner->submitted[index].request, &effect);
}

static bool has_answer(struct client *client)
{
    bool has = client->session.out.size > 0;

    resp_writer_clear(&client->session.out);
    return has;
}

/* Answers that are long are made one after the other, in rounds of their own, however many ask: each in its turn. */
static void long_answers_wait_for_each_other(void **state)
{
    enum { NAMES = 3000 };
    struct owner *owner = *state;
    struct client *client[] = {new_client(owner), new_client(owner), new_client(owner),
                               new_client(owner)};
    struct error_text err;

    fill_table(owner, NAMES);
    say(client[0], "LOCKS COUNT 1");
    say(client[1], "LOCKS COUNT 1");
    say(client[2], "SHOW name");
    assert_int_equal(owner->count, 1);
    assert_int_equal(client[0]->went, HF_OK);
    assert_int_equal(client[1]->went, SESSION_FULL);
    assert_int_equal(client[2]->went, SESSION_FULL);
    say(client[3], "RELEASE other lease"); /* whatever is short goes on */
    assert_int_equal(owner->count, 2);
    read_at(owner, 0);
    assert_true(has_answer(client[0]));
    say(client[0], "LOCKS COUNT 1"); /* who asks again comes last */
    assert_int_equal(client[0]->went, SESSION_FULL);
    assert_int_equal(session_go_on(&client[1]->session, &err), HF_OK);
    assert_int_equal(session_go_on(&client[2]->session, &err), SESSION_FULL);
    assert_int_equal(session_go_on(&client[0]->session, &err), SESSION_FULL);
    assert_int_equal(owner->count, 3);
    sessions_failed(&owner->sessions, owner->submitted[2].request, REPLICA_UNKNOWN);
    assert_true(has_answer(client[1]));
    session_close(&client[2]->session); /* nobody waits for one that is gone */
    session_unref(&client[2]->session);
    assert_int_equal(session_go_on(&client[0]->session, &err), HF_OK);
    assert_int_equal(owner->count, 4);
    say(client[1], "SHOW name");
    assert_int_equal(client[1]->went, SESSION_FULL);
    read_at(owner, 3);
    assert_int_equal(session_go_on(&client[1]->session, &err), HF_OK);
    answer(owner, 1, ANSWER_NUMBER, 0);
    read_at(owner, 4);
    assert_true(has_answer(client[1]));
}

/* Many that are short are under way together. */
static void short_answers_do_not_wait(void **state)
{
    struct owner *owner = *state;
    struct client *client[4];

    for (int i = 0; i < 4; i++) {
        client[i] = new_client(owner);
        say(client[i], i % 2 ? "SHOW name" : "LOCKS");
        assert_int_equal(client[i]->went, HF_OK);
    }
    assert_int_equal(owner->count, 4);
    for (int i = 0; i < 4; i++)
        read_at(owner, i);
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
    assert_int_equal(client->session.state, SESSION_ENDING);
    assert_int_equal(other->session.state, SESSION_OPEN);
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

/* ---- rights ------------------------------------------------------------------------------------------ */

static const struct user_grant grants_of_alice[] = {
    {RIGHT_ACQUIRE | RIGHT_LOOK, {"jobs/*", 6}},
    {RIGHT_LOOK, {"public", 6}},
    {RIGHT_BREAK, {"jobs/x", 6}},
};
static const struct user alice = {"alice", grants_of_alice, 3};
static const struct user nobody = {"nobody", NULL, 0};

/* One for the log: is it allowed? What is denied is answered at once, and in words. */
static bool is_allowed(struct owner *owner, struct client *client, const char *line)
{
    int before = owner->count;
    bool denied;

    say(client, line);
    denied = client->session.out.size > 7 && memcmp(client->session.out.bytes, "-NOPERM", 7) == 0;
    if (!denied && owner->count == before)
        fail_msg("%s: %.*s", line, (int)client->session.out.size, client->session.out.bytes);
    assert_int_equal(owner->count, denied ? before : before + 1);
    resp_writer_clear(&client->session.out);
    if (!denied)
        sessions_failed(&owner->sessions, owner->submitted[--owner->count].request,
                        REPLICA_UNKNOWN);
    resp_writer_clear(&client->session.out);
    return !denied;
}

static void a_right_is_one_on_names(void **state)
{
    struct owner *owner = *state;
    struct client *client = new_client(owner);

    client->session.user = &alice;
    assert_true(is_allowed(owner, client, "ACQUIRE jobs/x lease"));
    assert_false(is_allowed(owner, client, "ACQUIRE job lease"));
    assert_false(is_allowed(owner, client, "ACQUIRE public lease"));
    assert_true(is_allowed(owner, client, "RELEASE jobs/x lease"));
    assert_true(is_allowed(owner, client, "RENEW lease"));
    assert_true(is_allowed(owner, client, "SHOW public"));
    assert_true(is_allowed(owner, client, "SHOW jobs/y"));
    assert_false(is_allowed(owner, client, "SHOW other"));
    assert_true(is_allowed(owner, client, "SUBSCRIBE public jobs/y"));
    assert_false(is_allowed(owner, client, "SUBSCRIBE public other"));
    assert_true(is_allowed(owner, client, "BREAK jobs/x"));
    assert_false(is_allowed(owner, client, "BREAK jobs/y"));
    assert_false(is_allowed(owner, client, "FLOOR 5"));
    assert_true(is_allowed(owner, client, "ONCE CLAIM jobs/once lease"));
    assert_false(is_allowed(owner, client, "ONCE CLAIM once lease"));
    assert_true(is_allowed(owner, client, "ONCE READ public"));
    assert_false(is_allowed(owner, client, "ONCE RELEASE public lease"));
    assert_int_equal(owner->sessions.denied_commands, 8);
}

/* The operator who reads the audit file, and the client, are told what was in the way. */
static void the_name_that_is_denied_is_told(void **state)
{
    static const struct {
        const char *line, *name;
    } denied[] = {
        {"ACQUIRE other lease", "other"},
        {"SUBSCRIBE other public", "other"},
        {"SUBSCRIBE public other jobs", "other"},
        {"ONCE READ other", "other"},
        {"CHECK other 1", "other"},
        {"FLOOR 5", ""},
    };
    struct owner *owner = *state;
    struct client *client = new_client(owner);

    client->session.user = &alice;
    for (size_t i = 0; i < sizeof denied / sizeof *denied; i++) {
        snprintf(owner->denied, sizeof owner->denied, "nothing");
        assert_false(is_allowed(owner, client, denied[i].line));
        assert_string_equal(owner->denied, denied[i].name);
    }
    say(client, "SUBSCRIBE public other");
    expect(client, "-NOPERM user 'alice' has no right 'look' on each of these names, which "
                   "SUBSCRIBE needs\r\n");
}

/* A name costs as much as there are patterns, so that many names and many patterns are no one command's. */
static void what_one_command_compares_has_a_bound(void **state)
{
    enum { PATTERN = 512, PATTERNS = 11, NAMES = 18, NAME = 100 };
    static char pattern[PATTERN], line[NAMES * (NAME + 1) + 16] = "SUBSCRIBE";
    static struct user_grant grants[PATTERNS];
    struct owner *owner = *state;
    struct client *client = new_client(owner);
    struct user user = {"many", grants, PATTERNS};

    memset(pattern, '*', sizeof pattern);
    for (int i = 0; i < PATTERNS; i++)
        grants[i] = (struct user_grant){RIGHT_LOOK, {pattern, sizeof pattern}};
    client->session.user = &user;
    for (int i = 0; i < NAMES; i++) {
        if (i == NAMES - 6)
            assert_true(is_allowed(owner, client, line));
        snprintf(line + strlen(line), sizeof line - strlen(line), " %0*d", NAME, i);
    }
    say(client, line);
    expect(client, "-LIMIT so many names cannot be compared at once with all that user 'many' may: "
                   "say fewer in each SUBSCRIBE\r\n");
}

/* No pattern is tried with a word that no lock can be called: it is neither denied nor written down, whatever its user may. */
static void a_word_that_is_no_name_is_compared_with_nothing(void **state)
{
    static const char *const commands[] = {
        "ACQUIRE %s lease", "SHOW %s",          "CHECK %s 1", "BREAK %s",
        "ONCE READ %s",     "RELEASE %s lease", "OBSERVE %s", "SUBSCRIBE jobs/x %s"};
    struct owner *owner = *state;
    struct client *client = new_client(owner);
    char name[HF_NAME_MAX + 2], line[HF_NAME_MAX + 64];
    struct core_text all = {name, HF_NAME_MAX + 1};

    client->session.user = &alice;
    memset(name, '*', sizeof name);
    name[HF_NAME_MAX + 1] = '\0';
    snprintf(owner->denied, sizeof owner->denied, "nothing");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        snprintf(line, sizeof line, commands[i], name);
        say(client, line);
        expect(client, "-ERR a name has 1 to 512 bytes, this one 513\r\n");
    }
    assert_string_equal(owner->denied, "nothing");
    assert_int_equal(owner->sessions.denied_commands, 0);
    assert_false(user_may(&user_of_all, RIGHT_LOOK, &all));
}

/* An ACQUIRE says whose it is, and what he may have, if that is anything less than all. */
static void who_has_limits_is_named_with_them(void **state)
{
    struct owner *owner = *state;
    struct client *client = new_client(owner);
    struct user ci = user_of_all;
    struct core_effect over = {.kind = EFFECT_ANSWER,
                               .answer = ANSWER_OVER_HOLDS,
                               .owner = {"ci", 2},
                               .number = 7,
                               .limit = 5};

    snprintf(ci.name, sizeof ci.name, "ci");
    client->session.user = &ci;
    say(client, "ACQUIRE name lease");
    assert_false(owner->acquired.flags & CORE_QUOTA);
    ci.quota.holds = 5;
    say(client, "ACQUIRE name lease");
    assert_true(owner->acquired.flags & CORE_QUOTA);
    assert_true(owner->acquired.user.size == 2 && owner->acquired.quota.holds == 5);
    assert_true(owner->acquired.quota.leases == 0 && owner->acquired.quota.places == 0);
    resp_writer_clear(&client->session.out);
    sessions_effect(&owner->sessions, owner->submitted[0].request, &over);
    expect(client,
           "-QUOTA user 'ci' has 7 holds and places in queues, and may have 5 (holds = 5)\r\n");
    assert_int_equal(owner->sessions.over_quota_commands, 1);
    assert_int_equal(owner->sessions.denied_commands, 0);
    for (int i = 1; i < owner->count; i++)
        sessions_failed(&owner->sessions, owner->submitted[i].request, REPLICA_UNKNOWN);
}

static void a_sequencer_is_looked_at_by_its_name(void **state)
{
    struct owner *owner = *state;
    struct client *client = new_client(owner);

    client->session.user = &alice;
    assert_true(is_allowed(owner, client, "CHECK public 33"));
    assert_false(is_allowed(owner, client, "CHECK other 33"));
    for (int i = 0; i < 2; i++) {
        struct sequencer sequencer = {.token = 33, .mode = HF_EXCLUSIVE};
        char text[HF_SEQUENCER_MAX], line[sizeof text + 8];

        snprintf(sequencer.store, sizeof sequencer.store, "00112233445566778899aabbccddeeff");
        snprintf(sequencer.name, sizeof sequencer.name, "%s", i ? "other" : "public");
        sequencer_write(&sequencer, text);
        snprintf(line, sizeof line, "CHECK %s", text);
        assert_int_equal(is_allowed(owner, client, line), i == 0);
    }
}

static void who_has_no_grant_may_nothing(void **state)
{
    struct owner *owner = *state;
    struct client *client = new_client(owner);
    static const char *const lines[] = {"ACQUIRE a b",    "RELEASE a b", "RENEW b",   "END b",
                                        "CHECK a 1",      "SHOW a",      "LOCKS",     "BREAK a",
                                        "ONCE CLAIM a b", "ONCE READ a", "OBSERVE a", "FLOOR 1"};

    client->session.user = &nobody;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        assert_false(is_allowed(owner, client, lines[i]));
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
        cmocka_unit_test_setup_teardown(long_answers_wait_for_each_other, set_up, tear_down),
        cmocka_unit_test_setup_teardown(short_answers_do_not_wait, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_is_blocked_is_sent_to_the_next_leader, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(who_is_blocked_waits_a_second_for_a_leader, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(who_is_blocked_comes_anew_if_the_same_node_leads_again,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_waits_for_a_push_is_let_go, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_node_that_stops_says_why, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_right_is_one_on_names, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_name_that_is_denied_is_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_one_command_compares_has_a_bound, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_word_that_is_no_name_is_compared_with_nothing, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(who_has_limits_is_named_with_them, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_sequencer_is_looked_at_by_its_name, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_has_no_grant_may_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_goes_gives_up_its_place, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_has_gone_gives_up_its_place, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_later_one_with_a_lease_gets_the_answer, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(who_comes_back_for_its_place_is_told, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
