/* fuzz_redis.c: answers of a server of Redis to our scripts and to SCAN, from the bytes on: whatever comes out of the reader of RESP,
 * what the store makes of it is within its limits, or it is refused. */
#include "engines/redis/store.h"
#include "fuzz.h"

#include <holdfast/once.h>

static struct engine_store store;

static int look_at_entry(void *context, const hf_entry *entry)
{
    (void)context;
    REQUIRE(strcmp(entry->name, "name") == 0 && strlen(entry->owner) <= HF_OWNER_MAX);
    REQUIRE(strlen(entry->lease) == 0 || strlen(entry->lease) == 16);
    REQUIRE(entry->mode >= HF_EXCLUSIVE && entry->mode <= HF_PERMIT);
    REQUIRE(entry->age_ms >= -1 && entry->left_ms >= -1);
    REQUIRE(entry->token <= HF_TOKEN_MAX && entry->permits <= HF_PERMITS_MAX);
    return HF_OK;
}

static void read_row(const struct resp_node *value)
{
    const struct engine_sink sink = {NULL, look_at_entry};
    static struct row row;

    if (!row_read(value, "name", &row))
        return;
    REQUIRE(strlen(row.lease) < sizeof row.lease && strlen(row.owner) <= HF_OWNER_MAX);
    REQUIRE(row_add(&row, &sink) == HF_OK);
}

static void read_record(const struct resp_node *value)
{
    struct engine_record record = {0};
    int result = redis_once_answer(value, &record);

    REQUIRE(result == ENGINE_DONE || result == ENGINE_DIED || result == HF_EINTERNAL);
    if (result != HF_EINTERNAL)
        REQUIRE(record.token > 0 && record.token <= HF_TOKEN_MAX);
    REQUIRE(record.size <= HF_ONCE_RESULT_MAX && (record.size == 0) == !record.bytes);
    free(record.bytes);
}

static void read_page(const struct resp_node *value)
{
    struct scanning scanning = {.store = &store, .cursor = "0"};

    scan_read(&scanning, 0, 0, value);
    REQUIRE(strlen(scanning.cursor) < SCAN_CURSOR_MAX);
    names_sort(&scanning.names);
    for (size_t i = 0; i < scanning.names.count; i++) {
        REQUIRE(scanning.names.names[i][0] && strlen(scanning.names.names[i]) <= HF_NAME_MAX);
        REQUIRE(i == 0 || strcmp(scanning.names.names[i - 1], scanning.names.names[i]) < 0);
    }
    names_free(&scanning.names);
}

const int fuzz_rounds = 200000;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct resp_limits limits = {1 << 20, 1 << 20, 1000};
    struct resp_reader *reader = resp_reader_new(&limits);
    const struct resp_node *value = NULL;
    size_t room = 0;
    char *to;

    memcpy(store.prefix, "h:", 3);
    REQUIRE(reader);
    to = resp_reader_room(reader, size ? size : 1, &room);
    REQUIRE(to && room >= size);
    if (size)
        memcpy(to, data, size);
    resp_reader_filled(reader, size);
    while (resp_reader_next(reader, &value, NULL) == HF_OK && value) {
        read_row(value);
        read_record(value);
        read_page(value);
    }
    resp_reader_free(reader);
    return 0;
}

size_t fuzz_seed(unsigned n, uint8_t ret_bytes[FUZZ_MAX])
{
    static const char *const wires[] = {
        "*8\r\n$1\r\nh\r\n$1\r\ns\r\n:0\r\n$5\r\nlease\r\n:42\r\n$5\r\nowner\r\n:100\r\n:2000\r\n",
        "*8\r\n$1\r\nw\r\n$1\r\np\r\n$1\r\n3\r\n$0\r\n\r\n$1\r\n0\r\n$0\r\n\r\n:-5\r\n:-1\r\n",
        "*8\r\n$1\r\nb\r\n$1\r\nx\r\n:0\r\n$0\r\n\r\n:7\r\n$0\r\n\r\n:1\r\n:5\r\n",
        "*2\r\n$2\r\n17\r\n*4\r\n$3\r\nh:a\r\n$3\r\nh:b\r\n$3\r\nh:a\r\n$13\r\nholdfast.keys\r\n",
        "*3\r\n:3\r\n:42\r\n$3\r\nout\r\n*3\r\n:4\r\n:42\r\n:9\r\n",
        "*2\r\n$1\r\n0\r\n*0\r\n",
        "*8\r\n$1\r\nh\r\n$1\r\nx\r\n:0\r\n$0\r\n\r\n:-1\r\n$0\r\n\r\n:1\r\n:5\r\n",
        "*8\r\n$1\r\nh\r\n$1\r\np\r\n:5000\r\n$0\r\n\r\n:9\r\n$0\r\n\r\n:1\r\n:5\r\n",
    };

    if (n >= COUNT(wires))
        return 0;
    memcpy(ret_bytes, wires[n], strlen(wires[n]));
    return strlen(wires[n]);
}
