#include "peers/greeting.h"
#include "base/hmac.h"
#include "base/random.h"

#include <endian.h>
#include <string.h>

static const char magic[8] = "HFPEER01"; /* without its NUL: the last two digits are the version */
static const char by_connector[] = "holdfast: I connect";
static const char by_connected[] = "holdfast: I am connected to";

#define SIDE_SIZE 32 /* of those words, with zeros */
#define ADDRESS_AT (24 + GREETING_NONCE)

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

static void prove(const struct greeting *greeting, const char *side,
                  unsigned char ret_digest[GREETING_DIGEST])
{
    unsigned char words[SIDE_SIZE + GREETING_HELLO + GREETING_NONCE] = {0};

    memcpy(words, side, strlen(side));
    memcpy(words + SIDE_SIZE, greeting->hello, GREETING_HELLO);
    memcpy(words + SIDE_SIZE + GREETING_HELLO, greeting->nonce, GREETING_NONCE);
    hmac_sha256(greeting->secret, greeting->secret_size, words, sizeof words, ret_digest);
}

void greeting_hello(struct greeting *greeting, const void *secret, size_t secret_size,
                    uint64_t from, const char *address, uint64_t to,
                    unsigned char ret_hello[GREETING_HELLO])
{
    *greeting =
        (struct greeting){.secret = secret, .secret_size = secret_size, .from = from, .to = to};
    memcpy(greeting->hello, magic, sizeof magic);
    put_id(greeting->hello + 8, from);
    put_id(greeting->hello + 16, to);
    random_fill(greeting->hello + 24, GREETING_NONCE);
    strncpy((char *)greeting->hello + ADDRESS_AT, address, GREETING_ADDRESS - 1);
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

enum greeting_result greeting_reply(struct greeting *greeting, const void *secret,
                                    size_t secret_size, uint64_t own_id,
                                    const unsigned char hello[GREETING_HELLO],
                                    unsigned char ret_reply[GREETING_REPLY])
{
    if (memcmp(hello, magic, sizeof magic) != 0 || hello[GREETING_HELLO - 1] != '\0')
        return GREETING_STRANGER;
    *greeting = (struct greeting){.secret = secret,
                                  .secret_size = secret_size,
                                  .from = get_id(hello + 8),
                                  .to = get_id(hello + 16)};
    if (greeting->to != own_id || greeting->from == own_id || greeting->from == 0)
        return GREETING_MISTAKEN;
    memcpy(greeting->hello, hello, GREETING_HELLO);
    memcpy(greeting->address, hello + ADDRESS_AT, GREETING_ADDRESS);
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
