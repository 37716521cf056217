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
 *      56 272   address
 *     328 272   about
 *
 * The texts are visible ASCII, and zeros to the end, at least one. */
static const char magic[8] = "HFPEER02"; /* without its NUL: the last two digits are the version */
static const char by_connector[] = "holdfast: I connect";
static const char by_connected[] = "holdfast: I am connected to";

#define SIDE_SIZE 32 /* of those words, with zeros */
#define ADDRESS_AT (24 + GREETING_NONCE)
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

static void prove(const struct greeting *greeting, const char *side,
                  unsigned char ret_digest[GREETING_DIGEST])
{
    unsigned char words[SIDE_SIZE + SHA256_SIZE + GREETING_NONCE] = {0};

    memcpy(words, side, strlen(side));
    sha256(greeting->hello, GREETING_HELLO, words + SIDE_SIZE); /* base/hmac is for short texts */
    memcpy(words + SIDE_SIZE + SHA256_SIZE, greeting->nonce, GREETING_NONCE);
    hmac_sha256(greeting->secret, greeting->secret_size, words, sizeof words, ret_digest);
}

void greeting_hello(struct greeting *greeting, const void *secret, size_t secret_size,
                    uint64_t from, const char *address, const char *about, uint64_t to,
                    unsigned char ret_hello[GREETING_HELLO])
{
    *greeting =
        (struct greeting){.secret = secret, .secret_size = secret_size, .from = from, .to = to};
    memcpy(greeting->hello, magic, sizeof magic);
    put_id(greeting->hello + 8, from);
    put_id(greeting->hello + 16, to);
    random_fill(greeting->hello + 24, GREETING_NONCE);
    put_text(greeting->hello + ADDRESS_AT, address);
    put_text(greeting->hello + ABOUT_AT, about);
    memcpy(ret_hello, greeting->hello, GREETING_HELLO);
}

enum greeting_result greeting_prove(struct greeting *greeting,
                                    const unsigned char reply[GREETING_REPLY],
                                    unsigned char ret_proof[GREETING_PROOF])
{
    unsigned char expected[GREETING_DIGEST];

    memcpy(greeting->nonce, reply, GREETING_NONCE);
    prove(greeting, by_connected, expected);
    if (!digests_match(expected, reply + GREETING_NONCE))
        return GREETING_UNPROVEN;
    prove(greeting, by_connector, ret_proof);
    return GREETING_OK;
}

bool greeting_may_be_hello(const unsigned char *bytes, size_t size)
{
    return memcmp(bytes, magic, size < sizeof magic ? size : sizeof magic) == 0;
}

enum greeting_result greeting_reply(struct greeting *greeting, const void *secret,
                                    size_t secret_size, uint64_t own_id,
                                    const unsigned char hello[GREETING_HELLO],
                                    unsigned char ret_reply[GREETING_REPLY])
{
    *greeting = (struct greeting){.secret = secret,
                                  .secret_size = secret_size,
                                  .from = get_id(hello + 8),
                                  .to = get_id(hello + 16)};
    if (!greeting_may_be_hello(hello, GREETING_HELLO) ||
        !get_text(hello + ADDRESS_AT, greeting->address) ||
        !get_text(hello + ABOUT_AT, greeting->about))
        return GREETING_STRANGER;
    if (greeting->to != own_id || greeting->from == own_id || greeting->from == 0)
        return GREETING_MISTAKEN;
    memcpy(greeting->hello, hello, GREETING_HELLO);
    random_fill(greeting->nonce, GREETING_NONCE);
    memcpy(ret_reply, greeting->nonce, GREETING_NONCE);
    prove(greeting, by_connected, ret_reply + GREETING_NONCE);
    return GREETING_OK;
}

enum greeting_result greeting_accept(const struct greeting *greeting,
                                     const unsigned char proof[GREETING_PROOF])
{
    unsigned char expected[GREETING_DIGEST];

    prove(greeting, by_connector, expected);
    return digests_match(expected, proof) ? GREETING_OK : GREETING_UNPROVEN;
}
