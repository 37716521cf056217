#include "peers/handshake.h"
#include "base/error.h"
#include "base/hmac.h"
#include "base/random.h"
#include "base/sha256.h"
#include "base/switches.h"

#include <endian.h>
#include <string.h>

/* A hello; numbers have the lowest byte first.
 *
 *       0   8   magic
 *       8   8   id of who connects
 *      16   8   id of whom it wants
 *      24  32   nonce
 *      56  32   cluster
 *      88 272   address
 *     360 272   about
 *
 * A reply: nonce (32), cluster (32), about (272), proof (32). The texts are visible ASCII, and zeros to the end, at
 * least one. */
static const char magic[8] = "HFPEER05"; /* without its NUL: the last two digits are the version */
static const char by_connector[] = "holdfast: I connect";
static const char by_connected[] = "holdfast: I am connected to";

#define SIDE_SIZE 32 /* of those words, with zeros */
#define CLUSTER_AT (24 + HANDSHAKE_NONCE)
#define ADDRESS_AT (CLUSTER_AT + HANDSHAKE_CLUSTER)
#define ABOUT_AT (ADDRESS_AT + HANDSHAKE_TEXT)

_Static_assert(ABOUT_AT + HANDSHAKE_TEXT == HANDSHAKE_HELLO, "the table is the hello");

static void put_id(unsigned char *at, uint64_t id)
{
    id = htole64(id);
    memcpy(at, &id, sizeof id);
}

static uint64_t get_id(const unsigned char *at)
{
    uint64_t id;

    memcpy(&id, at, sizeof id);
    return le64toh(id);
}

/* How many bytes of visible ASCII it begins with, HANDSHAKE_TEXT at most. */
static size_t visible(const char *text)
{
    size_t length = 0;

    while (length < HANDSHAKE_TEXT && text[length] > ' ' && text[length] < 0x7f)
        length++;
    return length;
}

bool handshake_text_ok(const char *text)
{
    size_t length = visible(text);

    return length < HANDSHAKE_TEXT && text[length] == '\0';
}

static void put_text(unsigned char *at, const char *text)
{
    INVARIANT(handshake_text_ok(text));
    memcpy(at, text, strlen(text)); /* zeros are there already */
}

/* Nothing may hide behind its end: equal texts are equal bytes. */
static bool get_text(const unsigned char *at, char ret_text[HANDSHAKE_TEXT])
{
    size_t length = visible((const char *)at);

    if (length == HANDSHAKE_TEXT)
        return false;
    for (size_t i = length; i < HANDSHAKE_TEXT; i++)
        if (at[i] != 0)
            return false;
    memcpy(ret_text, at, HANDSHAKE_TEXT);
    return true;
}

bool handshake_cluster_ok(const char *text)
{
    return strspn(text, "0123456789abcdef") == HANDSHAKE_CLUSTER && text[HANDSHAKE_CLUSTER] == '\0';
}

static void put_cluster(unsigned char *at, const char *cluster)
{
    INVARIANT(!*cluster || handshake_cluster_ok(cluster));
    memcpy(at, cluster, strlen(cluster)); /* zeros are there already */
}

static bool get_cluster(const unsigned char *at, char ret_cluster[HANDSHAKE_CLUSTER + 1])
{
    static const unsigned char none[HANDSHAKE_CLUSTER];

    memcpy(ret_cluster, at, HANDSHAKE_CLUSTER);
    ret_cluster[HANDSHAKE_CLUSTER] = '\0';
    return memcmp(at, none, sizeof none) == 0 || handshake_cluster_ok(ret_cluster);
}

static bool is_elsewhere(const struct handshake *handshake)
{
    return handshake->cluster[0] && handshake->own->cluster[0] &&
           strcmp(handshake->cluster, handshake->own->cluster) != 0;
}

static void bind_to(struct handshake *handshake, const unsigned char *binding)
{
    if (!binding || SWITCHED(SWITCH_PEER_UNBOUND))
        return;
    handshake->is_bound = true;
    memcpy(handshake->binding, binding, HANDSHAKE_BINDING);
}

static void prove(const struct handshake *handshake, const char *side,
                  unsigned char ret_digest[HANDSHAKE_DIGEST])
{
    unsigned char words[SIDE_SIZE + 2 * SHA256_SIZE + HANDSHAKE_BINDING] = {0};
    size_t size = sizeof words - (handshake->is_bound ? 0 : HANDSHAKE_BINDING);

    memcpy(words, side, strlen(side));
    sha256(handshake->hello, HANDSHAKE_HELLO, words + SIDE_SIZE); /* base/hmac is for short texts */
    sha256(handshake->words, HANDSHAKE_WORDS, words + SIDE_SIZE + SHA256_SIZE);
    memcpy(words + SIDE_SIZE + 2 * SHA256_SIZE, handshake->binding, HANDSHAKE_BINDING);
    if (handshake->by_other)
        hmac_sha256(handshake->own->other, handshake->own->other_size, words, size, ret_digest);
    else
        hmac_sha256(handshake->own->secret, handshake->own->secret_size, words, size, ret_digest);
}

/* Whether the other side has proved that it knows a secret of ours; by_other is which. */
static bool is_proved(struct handshake *handshake, const char *side,
                      const unsigned char digest[HANDSHAKE_DIGEST])
{
    unsigned char expected[HANDSHAKE_DIGEST];

    handshake->by_other = false;
    prove(handshake, side, expected);
    if (digests_match(expected, digest))
        return true;
    if (!handshake->own->other)
        return false;
    handshake->by_other = true;
    prove(handshake, side, expected);
    return digests_match(expected, digest);
}

void handshake_hello(struct handshake *handshake, const struct handshake_own *own, uint64_t to,
                     const unsigned char *binding, unsigned char ret_hello[HANDSHAKE_HELLO])
{
    *handshake = (struct handshake){.own = own, .from = own->id, .to = to};
    bind_to(handshake, binding);
    memcpy(handshake->hello, magic, sizeof magic);
    put_id(handshake->hello + 8, own->id);
    put_id(handshake->hello + 16, to);
    random_fill(handshake->hello + 24, HANDSHAKE_NONCE);
    put_cluster(handshake->hello + CLUSTER_AT, own->cluster);
    put_text(handshake->hello + ADDRESS_AT, own->address);
    put_text(handshake->hello + ABOUT_AT, own->about);
    memcpy(ret_hello, handshake->hello, HANDSHAKE_HELLO);
}

enum handshake_result handshake_prove(struct handshake *handshake,
                                      const unsigned char reply[HANDSHAKE_REPLY],
                                      unsigned char ret_proof[HANDSHAKE_PROOF])
{
    memcpy(handshake->words, reply, HANDSHAKE_WORDS);
    if (!is_proved(handshake, by_connected, reply + HANDSHAKE_WORDS))
        return HANDSHAKE_UNPROVEN;
    if (!get_cluster(reply + HANDSHAKE_NONCE, handshake->cluster) ||
        !get_text(reply + HANDSHAKE_NONCE + HANDSHAKE_CLUSTER, handshake->about))
        return HANDSHAKE_STRANGER;
    prove(handshake, by_connector, ret_proof);
    return is_elsewhere(handshake) ? HANDSHAKE_ELSEWHERE : HANDSHAKE_OK;
}

bool handshake_may_be_hello(const unsigned char *bytes, size_t size)
{
    return memcmp(bytes, magic, size < sizeof magic ? size : sizeof magic) == 0;
}

enum handshake_result handshake_reply(struct handshake *handshake, const struct handshake_own *own,
                                      const unsigned char *binding,
                                      const unsigned char hello[HANDSHAKE_HELLO],
                                      unsigned char ret_reply[HANDSHAKE_REPLY])
{
    *handshake =
        (struct handshake){.own = own, .from = get_id(hello + 8), .to = get_id(hello + 16)};
    bind_to(handshake, binding);
    if (!handshake_may_be_hello(hello, HANDSHAKE_HELLO) ||
        !get_cluster(hello + CLUSTER_AT, handshake->cluster) ||
        !get_text(hello + ADDRESS_AT, handshake->address) ||
        !get_text(hello + ABOUT_AT, handshake->about))
        return HANDSHAKE_STRANGER;
    if (handshake->to != own->id || handshake->from == own->id || handshake->from == 0)
        return HANDSHAKE_MISTAKEN;
    memcpy(handshake->hello, hello, HANDSHAKE_HELLO);
    random_fill(handshake->words, HANDSHAKE_NONCE);
    put_cluster(handshake->words + HANDSHAKE_NONCE, own->cluster);
    put_text(handshake->words + HANDSHAKE_NONCE + HANDSHAKE_CLUSTER, own->about);
    memcpy(ret_reply, handshake->words, HANDSHAKE_WORDS);
    prove(handshake, by_connected, ret_reply + HANDSHAKE_WORDS);
    return HANDSHAKE_OK;
}

/* Only who has proved the secret is told that this is another cluster. */
enum handshake_result handshake_accept(struct handshake *handshake,
                                       const unsigned char proof[HANDSHAKE_PROOF])
{
    if (!is_proved(handshake, by_connector, proof))
        return HANDSHAKE_UNPROVEN;
    return is_elsewhere(handshake) ? HANDSHAKE_ELSEWHERE : HANDSHAKE_OK;
}
