#include "peers/greeting.h"
#include "base/error.h"
#include "base/hmac.h"
#include "base/random.h"
#include "base/sha256.h"

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
static const char magic[8] = "HFPEER04"; /* without its NUL: the last two digits are the version */
static const char by_connector[] = "holdfast: I connect";
static const char by_connected[] = "holdfast: I am connected to";

#define SIDE_SIZE 32 /* of those words, with zeros */
#define CLUSTER_AT (24 + GREETING_NONCE)
#define ADDRESS_AT (CLUSTER_AT + GREETING_CLUSTER)
#define ABOUT_AT (ADDRESS_AT + GREETING_TEXT)

_Static_assert(ABOUT_AT + GREETING_TEXT == GREETING_HELLO, "the table is the hello");

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

/* How many bytes of visible ASCII it begins with, GREETING_TEXT at most. */
static size_t visible(const char *text)
{
    size_t length = 0;

    while (length < GREETING_TEXT && text[length] > ' ' && text[length] < 0x7f)
        length++;
    return length;
}

bool greeting_text_ok(const char *text)
{
    size_t length = visible(text);

    return length < GREETING_TEXT && text[length] == '\0';
}

static void put_text(unsigned char *at, const char *text)
{
    INVARIANT(greeting_text_ok(text));
    memcpy(at, text, strlen(text)); /* zeros are there already */
}

/* Nothing may hide behind its end: equal texts are equal bytes. */
static bool get_text(const unsigned char *at, char ret_text[GREETING_TEXT])
{
    size_t length = visible((const char *)at);

    if (length == GREETING_TEXT)
        return false;
    for (size_t i = length; i < GREETING_TEXT; i++)
        if (at[i] != 0)
            return false;
    memcpy(ret_text, at, GREETING_TEXT);
    return true;
}

bool greeting_cluster_ok(const char *text)
{
    return strspn(text, "0123456789abcdef") == GREETING_CLUSTER && text[GREETING_CLUSTER] == '\0';
}

static void put_cluster(unsigned char *at, const char *cluster)
{
    INVARIANT(!*cluster || greeting_cluster_ok(cluster));
    memcpy(at, cluster, strlen(cluster)); /* zeros are there already */
}

static bool get_cluster(const unsigned char *at, char ret_cluster[GREETING_CLUSTER + 1])
{
    static const unsigned char none[GREETING_CLUSTER];

    memcpy(ret_cluster, at, GREETING_CLUSTER);
    ret_cluster[GREETING_CLUSTER] = '\0';
    return memcmp(at, none, sizeof none) == 0 || greeting_cluster_ok(ret_cluster);
}

static bool is_elsewhere(const struct greeting *greeting)
{
    return greeting->cluster[0] && greeting->own->cluster[0] &&
           strcmp(greeting->cluster, greeting->own->cluster) != 0;
}

static void prove(const struct greeting *greeting, const char *side,
                  unsigned char ret_digest[GREETING_DIGEST])
{
    unsigned char words[SIDE_SIZE + 2 * SHA256_SIZE] = {0};

    memcpy(words, side, strlen(side));
    sha256(greeting->hello, GREETING_HELLO, words + SIDE_SIZE); /* base/hmac is for short texts */
    sha256(greeting->words, GREETING_WORDS, words + SIDE_SIZE + SHA256_SIZE);
    if (greeting->by_other)
        hmac_sha256(greeting->own->other, greeting->own->other_size, words, sizeof words,
                    ret_digest);
    else
        hmac_sha256(greeting->own->secret, greeting->own->secret_size, words, sizeof words,
                    ret_digest);
}

/* Whether the other side has proved that it knows a secret of ours; by_other is which. */
static bool is_proved(struct greeting *greeting, const char *side,
                      const unsigned char digest[GREETING_DIGEST])
{
    unsigned char expected[GREETING_DIGEST];

    greeting->by_other = false;
    prove(greeting, side, expected);
    if (digests_match(expected, digest))
        return true;
    if (!greeting->own->other)
        return false;
    greeting->by_other = true;
    prove(greeting, side, expected);
    return digests_match(expected, digest);
}

void greeting_hello(struct greeting *greeting, const struct greeting_own *own, uint64_t to,
                    unsigned char ret_hello[GREETING_HELLO])
{
    *greeting = (struct greeting){.own = own, .from = own->id, .to = to};
    memcpy(greeting->hello, magic, sizeof magic);
    put_id(greeting->hello + 8, own->id);
    put_id(greeting->hello + 16, to);
    random_fill(greeting->hello + 24, GREETING_NONCE);
    put_cluster(greeting->hello + CLUSTER_AT, own->cluster);
    put_text(greeting->hello + ADDRESS_AT, own->address);
    put_text(greeting->hello + ABOUT_AT, own->about);
    memcpy(ret_hello, greeting->hello, GREETING_HELLO);
}

enum greeting_result greeting_prove(struct greeting *greeting,
                                    const unsigned char reply[GREETING_REPLY],
                                    unsigned char ret_proof[GREETING_PROOF])
{
    memcpy(greeting->words, reply, GREETING_WORDS);
    if (!is_proved(greeting, by_connected, reply + GREETING_WORDS))
        return GREETING_UNPROVEN;
    if (!get_cluster(reply + GREETING_NONCE, greeting->cluster) ||
        !get_text(reply + GREETING_NONCE + GREETING_CLUSTER, greeting->about))
        return GREETING_STRANGER;
    prove(greeting, by_connector, ret_proof);
    return is_elsewhere(greeting) ? GREETING_ELSEWHERE : GREETING_OK;
}

bool greeting_may_be_hello(const unsigned char *bytes, size_t size)
{
    return memcmp(bytes, magic, size < sizeof magic ? size : sizeof magic) == 0;
}

enum greeting_result greeting_reply(struct greeting *greeting, const struct greeting_own *own,
                                    const unsigned char hello[GREETING_HELLO],
                                    unsigned char ret_reply[GREETING_REPLY])
{
    *greeting = (struct greeting){.own = own, .from = get_id(hello + 8), .to = get_id(hello + 16)};
    if (!greeting_may_be_hello(hello, GREETING_HELLO) ||
        !get_cluster(hello + CLUSTER_AT, greeting->cluster) ||
        !get_text(hello + ADDRESS_AT, greeting->address) ||
        !get_text(hello + ABOUT_AT, greeting->about))
        return GREETING_STRANGER;
    if (greeting->to != own->id || greeting->from == own->id || greeting->from == 0)
        return GREETING_MISTAKEN;
    memcpy(greeting->hello, hello, GREETING_HELLO);
    random_fill(greeting->words, GREETING_NONCE);
    put_cluster(greeting->words + GREETING_NONCE, own->cluster);
    put_text(greeting->words + GREETING_NONCE + GREETING_CLUSTER, own->about);
    memcpy(ret_reply, greeting->words, GREETING_WORDS);
    prove(greeting, by_connected, ret_reply + GREETING_WORDS);
    return GREETING_OK;
}

/* Only who has proved the secret is told that this is another cluster. */
enum greeting_result greeting_accept(struct greeting *greeting,
                                     const unsigned char proof[GREETING_PROOF])
{
    if (!is_proved(greeting, by_connector, proof))
        return GREETING_UNPROVEN;
    return is_elsewhere(greeting) ? GREETING_ELSEWHERE : GREETING_OK;
}
