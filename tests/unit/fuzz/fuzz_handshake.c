/* fuzz_handshake.c: what whoever connects, or is connected to, sends before it has proved anything. The input's first byte says which of
 * the three it is sent in the place of, and how; the rest lies over what an honest node would have sent there.
 *
 *     only a node that knows the secret comes in, and only with bytes that nobody has changed
 *     what is taken of a hello or a reply could have been said by a node of ours
 *     whole or not, what is no hello is known by its first bytes */
#include "base/hmac.h"
#include "fuzz.h"
#include "peers/handshake.h"

#define FROM 7
#define TO 9

enum place { HELLO, REPLY, PROOF, PLACES };
#define OVER 4u   /* of the first byte: combined with the honest bytes, else instead of them */
#define SIGNED 8u /* a reply or proof by somebody who knows the secret, over whatever it says */
#define OTHER 16u /* who is connected to has exchanged the secret, and knows both */

static const char cluster[] = "0123456789abcdef0123456789abcdef";
static const char secret[] = "a secret", newer[] = "the next one";

struct talk {
    struct handshake_own caller, called;
    struct handshake connector, connected;
    uint8_t hello[HANDSHAKE_HELLO], reply[HANDSHAKE_REPLY], proof[HANDSHAKE_PROOF];
    bool changed; /* something was sent that no honest node has */
};

/* Who knows the secret and lies: the proof of a reply, made as handshake.c does. */
static void sign_reply(struct talk *talk)
{
    static const char side[] = "holdfast: I am connected to";
    uint8_t words[32 + 2 * SHA256_SIZE] = {0};

    memcpy(words, side, sizeof side - 1);
    sha256(talk->hello, HANDSHAKE_HELLO, words + 32);
    sha256(talk->reply, HANDSHAKE_WORDS, words + 32 + SHA256_SIZE);
    hmac_sha256(secret, sizeof secret - 1, words, sizeof words, talk->reply + HANDSHAKE_WORDS);
}

static void lay_over(struct talk *talk, struct fuzz_input *input, unsigned how, uint8_t *bytes,
                     size_t size)
{
    uint8_t before[HANDSHAKE_HELLO];
    size_t given = size;
    const uint8_t *from = fuzz_take(input, &given);

    memcpy(before, bytes, size);
    for (size_t i = 0; i < given; i++)
        bytes[i] = (uint8_t)(how & OVER ? bytes[i] ^ from[i] : from[i]);
    if (bytes == talk->reply && how & SIGNED)
        sign_reply(talk);
    talk->changed = memcmp(before, bytes, size) != 0;
}

static bool cluster_is_sound(const char *text)
{
    return !text[0] || handshake_cluster_ok(text);
}

static void begin(struct talk *talk, unsigned how)
{
    *talk = (struct talk){.caller = {.secret = secret,
                                     .secret_size = sizeof secret - 1,
                                     .id = FROM,
                                     .address = "127.0.0.1:7431",
                                     .about = "db1.example:7420",
                                     .cluster = cluster}};
    talk->called = talk->caller;
    talk->called.id = TO;
    talk->called.address = "127.0.0.1:7432";
    if (how & OTHER) {
        talk->called.other = newer;
        talk->called.other_size = sizeof newer - 1;
    }
    handshake_hello(&talk->connector, &talk->caller, TO, NULL, talk->hello);
}

static void look_at_hello(const struct talk *talk, enum handshake_result result)
{
    const struct handshake *it = &talk->connected;

    for (size_t size = 0; size <= HANDSHAKE_HELLO && result == HANDSHAKE_OK; size += 4)
        REQUIRE(handshake_may_be_hello(talk->hello, size));
    if (result != HANDSHAKE_OK)
        return;
    REQUIRE(it->from != 0 && it->from != TO && it->to == TO);
    REQUIRE(handshake_text_ok(it->address) && handshake_text_ok(it->about));
    REQUIRE(cluster_is_sound(it->cluster));
}

static void look_at_reply(const struct talk *talk, enum handshake_result result, bool by_member)
{
    const struct handshake *it = &talk->connector;

    REQUIRE(!talk->changed || by_member || result == HANDSHAKE_UNPROVEN);
    REQUIRE(talk->changed || result == HANDSHAKE_OK);
    if (result != HANDSHAKE_OK && result != HANDSHAKE_ELSEWHERE)
        return;
    REQUIRE(handshake_text_ok(it->about) && cluster_is_sound(it->cluster));
    REQUIRE((result == HANDSHAKE_OK) == (!it->cluster[0] || strcmp(it->cluster, cluster) == 0));
}

const int fuzz_rounds = 6000;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    unsigned how = fuzz_byte(&input), place = how % 4 % PLACES;
    struct talk talk;
    enum handshake_result result;

    begin(&talk, how);
    if (place == HELLO)
        lay_over(&talk, &input, how, talk.hello, HANDSHAKE_HELLO);
    result = handshake_reply(&talk.connected, &talk.called, NULL, talk.hello, talk.reply);
    look_at_hello(&talk, result);
    if (result != HANDSHAKE_OK)
        return 0;
    if (place == REPLY)
        lay_over(&talk, &input, how, talk.reply, HANDSHAKE_REPLY);
    result = handshake_prove(&talk.connector, talk.reply, talk.proof);
    look_at_reply(&talk, result, place == REPLY && how & SIGNED);
    if (result != HANDSHAKE_OK)
        return 0;
    if (place == PROOF)
        lay_over(&talk, &input, how, talk.proof, HANDSHAKE_PROOF);
    result = handshake_accept(&talk.connected, talk.proof);
    REQUIRE(result == (talk.changed ? HANDSHAKE_UNPROVEN : HANDSHAKE_OK));
    return 0;
}

/* Each place, whole and changed; and zeros over it change nothing. */
size_t fuzz_seed(unsigned n, uint8_t ret_bytes[FUZZ_MAX])
{
    struct talk talk;
    unsigned place = n % PLACES;
    static const size_t sizes[] = {HANDSHAKE_HELLO, HANDSHAKE_REPLY, HANDSHAKE_PROOF};

    if (n >= 4 * PLACES)
        return 0;
    begin(&talk, 0);
    ret_bytes[0] = (uint8_t)(place | (n / PLACES % 2 ? OVER : 0) | (n / PLACES / 2 ? SIGNED : 0));
    memset(ret_bytes + 1, 0, sizes[place]);
    if (place == HELLO && !(ret_bytes[0] & OVER)) {
        memcpy(ret_bytes + 1, talk.hello, HANDSHAKE_HELLO);
        memset(ret_bytes + 1 + 24, 1, HANDSHAKE_NONCE); /* the same each time */
    }
    if (place == REPLY && ret_bytes[0] & SIGNED && !(ret_bytes[0] & OVER))
        snprintf((char *)ret_bytes + 1 + HANDSHAKE_NONCE, HANDSHAKE_CLUSTER + 32, "%sdb2:7420",
                 cluster);
    return 1 + sizes[place];
}
