/* fuzz_resp.c: bytes from a peer, as RESP. The first byte of the input says how the rest is cut into
 * pieces; whole or in pieces, the same values must come out, and the same end. */
#include "base/hash.h"
#include "fuzz.h"
#include "resp/resp.h"

static void look_at(const struct resp_node *value, const struct resp_limits *limits, uint64_t *sum)
{
    REQUIRE(value->span >= 1 && value->span <= limits->nodes_max);
    for (uint32_t i = 0; i < value->span; i++) {
        const struct resp_node *node = &value[i];
        uint64_t parts[] = {*sum,
                            node->type,
                            node->span,
                            node->count,
                            (uint64_t)node->integer,
                            hash_bytes(node->text, node->size)};
        uint32_t next = 1;
        int64_t number;

        REQUIRE(node->type >= RESP_SIMPLE && node->type <= RESP_PUSH);
        REQUIRE(node->type != RESP_PUSH || i == 0);
        REQUIRE(node->size <= limits->value_max);
        for (uint32_t k = 0; k < node->count; k++) {
            const struct resp_node *item = resp_item(node, k);

            REQUIRE(item == node + next);
            next += item->span;
        }
        REQUIRE(resp_item(node, node->count) == NULL);
        REQUIRE(next == node->span && i + next <= value->span);
        resp_to_int64(node, &number);
        resp_is(node, "OK");
        *sum = hash_bytes(parts, sizeof parts);
    }
}

/* What comes of these bytes: all values in one number, and how it ended. */
static int outcome(const uint8_t *data, size_t size, uint32_t cuts,
                   const struct resp_limits *limits, uint64_t *ret_sum)
{
    struct resp_reader *reader = resp_reader_new(limits);
    const struct resp_node *value = NULL;
    int result = HF_OK;

    REQUIRE(reader);
    *ret_sum = 0;
    for (size_t at = 0; at < size && result == HF_OK;) {
        size_t piece = cuts ? 1 + cuts % 13 : size, room = 0;
        char *to;

        piece = piece < size - at ? piece : size - at;
        to = resp_reader_room(reader, piece, &room);
        REQUIRE(to && room >= piece);
        memcpy(to, data + at, piece);
        resp_reader_filled(reader, piece);
        at += piece;
        cuts = cuts * 1103515245u + (cuts ? 12345u : 0);
        do {
            result = resp_reader_next(reader, &value, NULL);
            if (result == HF_OK && value)
                look_at(value, limits, ret_sum);
        } while (result == HF_OK && value);
    }
    REQUIRE(result == HF_OK || result == HF_EREFUSED);
    if (result == HF_OK)
        result = resp_reader_pending(reader) > 0;
    resp_reader_free(reader);
    return result;
}

const int fuzz_rounds = 200000;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct resp_limits limits[] = {{200, 400, 40}, {1 << 20, 1 << 20, 100000}};
    uint64_t whole, pieces;

    if (size < 1)
        return 0;
    for (size_t i = 0; i < COUNT(limits); i++) {
        int end = outcome(data + 1, size - 1, 0, &limits[i], &whole);

        REQUIRE(end == outcome(data + 1, size - 1, 1u + data[0], &limits[i], &pieces));
        REQUIRE(whole == pieces);
    }
    return 0;
}

size_t fuzz_seed(unsigned n, uint8_t ret_bytes[FUZZ_MAX])
{
    static const char *const wires[] = {
        "*3\r\n$7\r\nACQUIRE\r\n$4\r\nname\r\n$5\r\nlease\r\n*1\r\n$4\r\nPING\r\n",
        "+OK\r\n-ERR words\r\n:42\r\n$5\r\nhello\r\n$-1\r\n*-1\r\n_\r\n",
        "%2\r\n+holder\r\n$1\r\nA\r\n+queue\r\n*2\r\n$1\r\nB\r\n$1\r\nC\r\n",
        ">3\r\n+granted\r\n$4\r\nname\r\n:9007199254740991\r\n#t\r\n#f\r\n,3.14\r\n",
        "(12345678901234567890\r\n*1\r\n(-1\r\n",
        "~2\r\n:1\r\n:-2\r\n=8\r\ntxt:abcd\r\n!5\r\nERR x\r\n|1\r\n+ttl\r\n:5\r\n+after\r\n",
        "*2\r\n*1\r\n*1\r\n*0\r\n*1\r\n_\r\n",
        "PING\r\nACQUIRE name lease TTL 1000\r\n",
    };
    size_t size;

    if (n >= COUNT(wires))
        return 0;
    size = strlen(wires[n]);
    ret_bytes[0] = (uint8_t)(n * 7);
    memcpy(ret_bytes + 1, wires[n], size);
    return size + 1;
}
