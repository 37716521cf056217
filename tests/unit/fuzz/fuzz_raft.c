/* fuzz_raft.c: a node of three, and whatever another that knows the secret may send it, out of order and out of its mind, with time, its
 * own disk and its own proposals in between. The input says what happens, event after event. Each message goes through the bytes that it
 * has between nodes: what the decoder refuses never arrives. Whatever comes, the node goes on or stops in words; it does not contradict
 * itself, its term and its commit index never go back, and it votes once in a term. */
#include "base/crc32c.h"
#include "fuzz.h"
#include "raft/raft.h"
#include "replica/message.h"

#define FOUNDED_CHAIN 77
#define SENT_MAX 6 /* entries of one append */

static const struct raft_limits limits = {.members = 4,
                                          .window = 8,
                                          .in_flight_bytes = 100,
                                          .election_us = 500000,
                                          .heartbeat_us = 50000};
static const struct raft_members three = {
    .index = 1, .count = 3, .at = {{1, 11, true}, {2, 12, true}, {3, 13, true}}};

struct node {
    struct raft *raft;
    int64_t now_us;
    uint64_t term, vote, commit;
    uint64_t given, epoch; /* to the disk: all up to there */
    bool over;
};

static struct raft_output output;

static void step(struct node *node, struct raft_event *event)
{
    const char *wrong;

    event->now_us = node->now_us;
    raft_step(node->raft, event, &output);
    wrong = raft_check(node->raft);
    if (wrong)
        fuzz_failed(__FILE__, __LINE__, "the node contradicts itself:", wrong);
    REQUIRE(output.term >= node->term && output.commit >= node->commit);
    REQUIRE(output.commit <= raft_last(node->raft));
    REQUIRE(output.persist || (output.term == node->term && output.vote == node->vote));
    REQUIRE(output.term > node->term || !node->vote || output.vote == node->vote);
    REQUIRE(output.message_count <= RAFT_MESSAGES_MAX);
    node->term = output.term;
    node->vote = output.vote;
    node->commit = output.commit;
    if (output.append) {
        node->given = output.append_last;
        node->epoch = output.append_epoch;
    }
    if (!output.fatal)
        return;
    REQUIRE(output.fatal[0] && raft_next_us(node->raft) == INT64_MAX);
    node->over = true;
}

/* ---- messages ---------------------------------------------------------------------------------- */

/* Mostly near to what there is. */
static uint64_t near(struct fuzz_input *input, uint64_t number)
{
    unsigned how = fuzz_byte(input);

    if (how == 255)
        return fuzz_number(input, 8);
    return number + how % 16 < 8 ? how % 16 : number + how % 16 - 8;
}

static struct raft_id near_id(struct node *node, struct fuzz_input *input)
{
    uint64_t index = near(input, raft_last(node->raft));
    struct raft_id id = {index, 1, FOUNDED_CHAIN};

    if (raft_id_of(node->raft, index, &id) && fuzz_byte(input) % 8 != 7)
        return id;
    return (struct raft_id){index, near(input, node->term), near(input, FOUNDED_CHAIN)};
}

/* They follow the id, as far as the input lets them. */
static void make_entries(struct node *node, struct fuzz_input *input, struct raft_message *message,
                         struct raft_entry *entries, uint8_t (*bytes)[RAFT_CONFIG_BYTES_MAX + 8])
{
    uint64_t chain = message->id.chain;

    message->count = fuzz_byte(input) % (SENT_MAX + 1);
    message->entries = entries;
    for (uint32_t i = 0; i < message->count; i++) {
        unsigned how = fuzz_byte(input);
        struct raft_members members = three;
        struct raft_entry *entry = &entries[i];

        *entry = (struct raft_entry){.term = message->term, .type = (uint8_t)(1 + how % 4)};
        if (how & 4)
            entry->term = near(input, node->term);
        entry->bytes = memset(bytes[i], 1, sizeof bytes[i]);
        if (entry->type == RAFT_CONFIG) {
            members.count = 1 + (int)(how >> 4 & 3);
            members.at[how >> 6] = (struct raft_member){1 + (how >> 3 & 3), how, how & 1};
            entry->size = (uint32_t)raft_members_write(&members, bytes[i]);
            for (int k = 0; k < members.count; k++) /* no addresses */
                memset(bytes[i] + entry->size, 0, 2), entry->size += 2;
        } else if (entry->type == RAFT_VERSION) {
            memcpy(bytes[i], "\1\0\0", 4);
            entry->size = 4;
        } else if (entry->type == RAFT_COMMAND) {
            entry->size = how >> 4;
        }
        entry->sum = crc32c(0, entry->bytes, entry->size);
        chain = raft_chain(chain, entry->term, entry->type, entry->size, entry->sum);
        entry->chain = how & 8 ? near(input, chain) : chain;
    }
}

static void make_message(struct node *node, struct fuzz_input *input, struct raft_message *message)
{
    static struct raft_entry entries[SENT_MAX];
    static uint8_t bytes[SENT_MAX][RAFT_CONFIG_BYTES_MAX + 8];
    unsigned from = fuzz_byte(input);

    *message = (struct raft_message){.type = (uint8_t)(RAFT_APPEND + from / 16 % 8),
                                     .from = from % 5,
                                     .to = from % 16 == 15 ? from : 1,
                                     .incarnation = from & 8 ? 99 : 10 + from % 5};
    message->term = near(input, node->term);
    message->id = near_id(node, input);
    message->commit = near(input, node->commit);
    message->round = (int64_t)near(input, (uint64_t)node->now_us);
    message->acked = near(input, 0);
    message->acked_by = fuzz_byte(input) % 2 ? 11 : 0;
    message->yes = fuzz_byte(input) % 2;
    message->transfer = fuzz_byte(input) % 4 == 3;
    message->index = near(input, raft_last(node->raft));
    message->asked_term = near(input, node->term);
    message->hint_index = near(input, message->index);
    message->hint_term = near(input, node->term);
    if (message->type == RAFT_APPEND)
        make_entries(node, input, message, entries, bytes);
}

/* As bytes, and back. */
static void receive(struct node *node, struct fuzz_input *input)
{
    static uint8_t head[MESSAGE_HEAD_MAX], bytes[MESSAGE_HEAD_MAX + SENT_MAX * 1024];
    static struct iovec pieces[MESSAGE_PIECES_MAX];
    static struct raft_entry entries[MESSAGE_ENTRIES_MAX];
    struct raft_event event = {.type = RAFT_ON_MESSAGE};
    struct message sent = {.total = 1, .bytes = (const unsigned char *)"x", .size = 1}, message;
    size_t size = 0;
    unsigned count;

    make_message(node, input, &sent.raft);
    message = sent;
    count = message_encode(&sent, 1, head, pieces);
    for (unsigned i = 0; i < count; size += pieces[i++].iov_len)
        memcpy(bytes + size, pieces[i].iov_base, pieces[i].iov_len);
    if (!message_decode(bytes, size, entries, &message))
        return;
    event.message = message.raft;
    step(node, &event);
}

/* ---- the rest ---------------------------------------------------------------------------------- */

/* A snapshot has come: its pieces first, or raft is not told of it. */
static void installed(struct node *node, struct fuzz_input *input)
{
    struct raft_members members = three;
    struct raft_event event = {.type = RAFT_ON_INSTALLED, .members = &members};
    struct raft_event piece = {
        .type = RAFT_ON_MESSAGE,
        .message = {.type = RAFT_SNAPSHOT, .from = 2, .incarnation = 12, .to = 1}};

    event.id = near_id(node, input);
    piece.message.id = event.id;
    piece.message.term = near(input, node->term);
    members.index = near(input, event.id.index);
    members.count = 1 + (int)(fuzz_byte(input) % 3);
    if (event.id.index == 0 || event.id.term == 0 || event.id.term > piece.message.term ||
        piece.message.term > RAFT_TERM_MAX) /* the decoder refuses those */
        return;
    step(node, &piece);
    if (output.result == RAFT_OK && !node->over)
        step(node, &event);
}

static void on_disk(struct node *node, struct fuzz_input *input)
{
    unsigned back = fuzz_byte(input) % 4;
    struct raft_event event = {.type = RAFT_ON_PERSISTED,
                               .epoch = node->epoch - fuzz_byte(input) % 2,
                               .index = node->given > back ? node->given - back : node->given};

    if (node->given > 0)
        step(node, &event);
}

static void other(struct node *node, struct fuzz_input *input, unsigned type)
{
    static const char address[] = "";
    struct raft_event event = {.type = (uint8_t)type,
                               .entry_type = RAFT_COMMAND,
                               .since_us = node->now_us,
                               .bytes = address};

    event.member = (struct raft_member){fuzz_byte(input) % 5, 10 + fuzz_byte(input) % 5, true};
    event.change = (uint8_t)(RAFT_ADD + fuzz_byte(input) % 4);
    event.size = fuzz_byte(input);
    event.index = near(input, raft_last(node->raft));
    if ((type == RAFT_ON_CHANGE || type == RAFT_ON_GONE) && event.member.id == 0)
        return;
    step(node, &event);
}

const int fuzz_rounds = 60000;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct raft_boot boot = {.id = 1,
                             .incarnation = 11,
                             .term = 3,
                             .snapshot = {1, 1, FOUNDED_CHAIN},
                             .members = &three,
                             .commit = 1,
                             .seed = 1,
                             .now_us = 1000000};
    struct node node = {.now_us = boot.now_us, .term = 3, .commit = 1};

    node.raft = calloc(1, raft_size(&limits));
    REQUIRE(node.raft && !raft_boot_check(&limits, &boot));
    raft_init(node.raft, &limits, &boot);
    while (input.left > 0 && !node.over) {
        unsigned what = fuzz_byte(&input);

        node.now_us += what & 128 ? (int64_t)fuzz_byte(&input) * 5000 : 10;
        what = what % 16;
        if (what < 6)
            receive(&node, &input);
        else if (what == 6)
            on_disk(&node, &input);
        else if (what == 7)
            installed(&node, &input);
        else if (what < 16 && what - 8 + RAFT_ON_TIME <= RAFT_ON_SNAPSHOT_SENT &&
                 what - 8 + RAFT_ON_TIME != RAFT_ON_PERSISTED)
            other(&node, &input, what - 8 + RAFT_ON_TIME);
    }
    free(node.raft);
    return 0;
}

/* Votes, appends, replies and time in turn; mutations make the rest. */
size_t fuzz_seed(unsigned n, uint8_t ret_bytes[FUZZ_MAX])
{
    if (n >= 8)
        return 0;
    for (size_t i = 0; i < 256; i++)
        ret_bytes[i] = (uint8_t)(i % 13 == 0 ? n * 17 : (i * (n + 3)) % 7 * 8);
    return 256;
}
