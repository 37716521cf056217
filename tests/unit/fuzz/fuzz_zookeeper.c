/* fuzz_zookeeper.c: what is in ZooKeeper below a name: the names of the nodes there, anybody's, and their data. The input's first byte
 * says whose names they are; lines are the names, and behind the first empty line comes the data of one. Those who stand in the queue are
 * in order; who holds conflicts with nobody before it; and who waits for somebody waits for one that came before. */
#include "engines/zookeeper/store.h"
#include "fuzz.h"

#define NODES_MAX 64
#define DATA 128u /* of the first byte: all of it is data */

static const char id[] = "0123456789abcdef0123456789abcdef";

static void judge(const struct queue *queue)
{
    uint32_t holders = 0;

    for (int i = 0; i < queue->count; i++) {
        const struct contender *own = &queue->contenders[i];
        int watch = -1;
        enum zk_verdict verdict = contenders_judge(queue->contenders, queue->count, i, &watch);

        REQUIRE(own->mode >= HF_EXCLUSIVE && own->mode <= HF_PERMIT);
        REQUIRE((own->mode == HF_PERMIT) == (own->permits > 0));
        REQUIRE(verdict != ZK_WAITS || (watch >= 0 && watch < i));
        REQUIRE(i > 0 || verdict == ZK_HOLDS);
        if (verdict != ZK_HOLDS)
            continue;
        holders++;
        REQUIRE(own->mode != HF_EXCLUSIVE || i == 0);
        REQUIRE(own->mode != HF_PERMIT || holders <= own->permits);
        REQUIRE(own->mode == queue->contenders[0].mode);
    }
}

/* What we name, and ZooKeeper numbers, is read as what it was. */
static void name_again(enum zk_names names, const struct contender *is)
{
    char name[ZK_CHILD_MAX + 16], plain[ZK_ID_SIZE] = "";
    struct contender again;
    size_t used = 0;

    if (!is->id)
        return;
    for (const char *at = is->id; used < ZK_ID_SIZE - 1; at++)
        if (*at != '-')
            plain[used++] = *at;
    contender_name(names, is->mode, is->permits, plain, name);
    used = strlen(name);
    snprintf(name + used, sizeof name - used, "%010d", is->sequence);
    REQUIRE(contender_parse(names, name, &again));
    REQUIRE(again.mode == is->mode && again.permits == is->permits);
    REQUIRE(again.sequence == is->sequence && again.id);
}

static void try_names(enum zk_names names, char *text)
{
    char *lines[NODES_MAX];
    struct String_vector list = {.data = lines};
    struct queue queue;

    for (char *at = strtok(text, "\n"); at && list.count < NODES_MAX; at = strtok(NULL, "\n"))
        lines[list.count++] = at;
    REQUIRE(queue_read(names, &list, &queue));
    REQUIRE(queue.count <= list.count && (queue.count == list.count) == !queue.foreign);
    judge(&queue);
    for (int i = 0; i < queue.count; i++)
        name_again(names, &queue.contenders[i]);
    REQUIRE(queue_find(&queue, id) < queue.count);
    queue_free(&queue);
}

static void try_data(const char *bytes, size_t size)
{
    struct zk_record record, again;
    char data[ZK_DATA_MAX];
    size_t length;

    record_read(bytes, size, &record);
    REQUIRE(strlen(record.owner) <= HF_OWNER_MAX && record.ttl_ms >= 0);
    length = record_write(record.ttl_ms, record.broken, record.owner, data);
    REQUIRE(length < sizeof data);
    record_read(data, length, &again);
    REQUIRE(again.ttl_ms == record.ttl_ms && again.broken == record.broken);
    REQUIRE(strcmp(again.owner, record.owner) == 0);
}

const int fuzz_rounds = 200000;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text;

    if (size < 1)
        return 0;
    if (data[0] & DATA) {
        text = (char *)fuzz_copy(data + 1, size - 1);
        try_data(text, size - 1);
    } else {
        text = fuzz_text(data + 1, size - 1);
        try_names((enum zk_names)(data[0] % 3), text);
    }
    free(text);
    return 0;
}

size_t fuzz_seed(unsigned n, uint8_t ret_bytes[FUZZ_MAX])
{
#define ID "0123456789abcdef0123456789abcdef"
#define UUID "01234567-89ab-cdef-0123-456789abcdef"
    static const struct {
        uint8_t first;
        const char *text;
    } texts[] = {
        {0, "x-" ID "-0000000001\ns-" ID "-0000000002\nx-" ID "--000000003"},
        {0, "s-" ID "-2147483647\ns-" ID "--2147483648\nnobody\nx-" ID "--2147483647"},
        {0,
         "p2-" ID "-0000000001\np2-" ID "-0000000002\np2-" ID "-0000000003\np2-" ID "-0000000004"},
        {1, ID "__lock__0000000001\nelse__lock__0000000002"},
        {2, "_c_" UUID "-lock-0000000001\nlock-0000000007"},
        {DATA, "holdfast/1 ttl=5000\nme"},
        {DATA, "holdfast/1 ttl=5000 broken\nme"},
        {DATA, "somebody else"},
    };

    if (n >= COUNT(texts))
        return 0;
    ret_bytes[0] = texts[n].first;
    memcpy(ret_bytes + 1, texts[n].text, strlen(texts[n].text));
    return 1 + strlen(texts[n].text);
}
