/* fuzz_holdfast.c: answers and errors of a holdfastd, from the bytes on: whatever comes out of the reader of RESP, what the store makes of
 * it is within its limits, or it is refused in words. */
#include "engines/holdfast/store.h"
#include "fuzz.h"

#include <holdfast/once.h>

static struct engine_store store;

static int look_at_entry(void *context, const hf_entry *entry)
{
    (void)context;
    REQUIRE(entry->name[0] && strlen(entry->name) <= HF_NAME_MAX &&
            strlen(entry->owner) <= HF_OWNER_MAX);
    REQUIRE(entry->mode >= HF_EXCLUSIVE && entry->mode <= HF_PERMIT);
    REQUIRE(entry->kind >= HF_ENTRY_HOLDER && strlen(entry->lease) <= 64);
    return HF_OK;
}

static void note_token(void *context, uint64_t token)
{
    *(uint64_t *)context += token;
}

static void read_lock(const struct resp_node *value)
{
    const struct engine_sink sink = {NULL, look_at_entry};
    uint64_t sum = 0;
    int result = decode_lock(&store, value, &sink);

    REQUIRE(result == HF_OK || result == HF_EINTERNAL);
    decode_holders(value, note_token, &sum);
}

static void read_record(const struct resp_node *value)
{
    struct engine_claim claim = {.name = "n", .lease = "l", .once = true};
    struct waiting waiting = {.claim = &claim};
    int result = holdfast_once_answer(&claim, value);

    REQUIRE(result == ENGINE_HELD || result == ENGINE_DONE || result == ENGINE_DIED ||
            result == HF_EINTERNAL);
    if (result == ENGINE_HELD)
        REQUIRE(claim.token > 0 && claim.token <= HF_TOKEN_MAX);
    if (result == ENGINE_DONE || result == ENGINE_DIED)
        REQUIRE(claim.record.token > 0 && claim.record.token <= HF_TOKEN_MAX);
    holdfast_once_note_push(&waiting, value);
    REQUIRE(!waiting.told || (waiting.record.token > 0 && waiting.record.token <= HF_TOKEN_MAX));
    free(claim.record.bytes);
    free(waiting.record.bytes);
}

static void read_error(const struct resp_node *value)
{
    static const struct address at = {.shown = "there:7420"};
    struct address moved = {.port = ""};
    struct error_text err = {""};

    REQUIRE(reply_error(&at, value, &err) < 0 && err.text[0]);
    reply_tells(value);
    if (reply_is_elsewhere(value, &moved))
        REQUIRE(!moved.port[0] || (moved.host[0] && moved.shown[0] && !moved.path[0]));
}

const int fuzz_rounds = 200000;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct resp_limits limits = {1 << 20, 1 << 20, 1000};
    struct resp_reader *reader = resp_reader_new(&limits);
    const struct resp_node *value = NULL;
    size_t room = 0;
    char *to;

    store.prefix_size = (size_t)snprintf(store.prefix, sizeof store.prefix, "p/");
    REQUIRE(reader);
    to = resp_reader_room(reader, size ? size : 1, &room);
    REQUIRE(to && room >= size);
    if (size)
        memcpy(to, data, size);
    resp_reader_filled(reader, size);
    while (resp_reader_next(reader, &value, NULL) == HF_OK && value) {
        read_lock(value);
        read_record(value);
        if (value->type == RESP_ERROR)
            read_error(value);
    }
    resp_reader_free(reader);
    return 0;
}

size_t fuzz_seed(unsigned n, uint8_t ret_bytes[FUZZ_MAX])
{
    static const char *const wires[] = {
        ("%4\r\n+name\r\n$3\r\np/"
         "a\r\n+holds\r\n:1\r\n+permits\r\n:2\r\n+holders\r\n*1\r\n%6\r\n+state\r\n+holds\r\n"
         "+mode\r\n+permit\r\n+token\r\n:42\r\n+owner\r\n$2\r\nme\r\n+lease\r\n$4\r\nabcd\r\n+left_"
         "ms\r\n:900\r\n"),
        "%4\r\n+name\r\n$3\r\np/"
        "b\r\n+holds\r\n:2\r\n+holders\r\n*0\r\n+waiters\r\n*1\r\n%2\r\n+state\r\n+waits\r\n+age_"
        "ms\r\n:7\r\n",
        "*3\r\n+DONE\r\n:42\r\n$3\r\nout\r\n*2\r\n+RUN\r\n:7\r\n*2\r\n+DIED\r\n:8\r\n",
        ">5\r\n+done\r\n$1\r\nn\r\n$1\r\nl\r\n:9\r\n$1\r\nx\r\n>5\r\n+left\r\n$1\r\nn\r\n$"
        "1\r\nl\r\n+died\r\n:9\r\n",
        "-MOVED 0 10.0.0.2:7420\r\n-TRYAGAIN belongs to no cluster yet\r\n-MODE in use "
        "otherwise\r\n",
        "%2\r\n+name\r\n$2\r\np/\r\n+holds\r\n:1\r\n",
        "-ERR unknown\r\n-\r\n-STOPPED \r\n",
    };

    if (n >= COUNT(wires))
        return 0;
    memcpy(ret_bytes, wires[n], strlen(wires[n]));
    return strlen(wires[n]);
}
