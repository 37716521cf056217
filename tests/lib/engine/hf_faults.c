/* hf-faults PATH COMMAND [ARGS]: the faults of test_engine.h for tests that are not C. */
#include "base/text.h"
#include "test_engine.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Noreturn void usage(void)
{
    fprintf(stderr, "usage: hf-faults PATH COMMAND [ARGS]\n"
                    "  lose-reply|lose-request|unreachable|refuse|hang [CALL] N|on|off\n"
                    "  delay [CALL] MS      every such call takes so long (0: no more)\n"
                    "  grant-twice on|off   a hold keeps nobody out\n"
                    "  clear                no more faults\n"
                    "  advance MS           the store's clock jumps ahead\n"
                    "  expire [NAME]        ends leases now, as if their TTL had run out\n"
                    "  counts [reset]       how often each call was made\n"
                    "CALL: acquire renew release abandon show list check break floor id"
                    " finish read; none means all\n");
    exit(64);
}

static int64_t number(const char *text)
{
    uint64_t value;

    if (!text || !text_to_u64(text, INT32_MAX, &value))
        usage();
    return (int64_t)value;
}

/* Takes the word CALL off the front of the arguments, if it is there. */
static int take_call(char ***args)
{
    if (!**args)
        usage();
    for (int call = 0; call < FAULT_CALLS; call++)
        if (strcmp(**args, fault_call_name(call)) == 0) {
            (*args)++;
            return call;
        }
    return CALL_ANY;
}

static int32_t count_of(const char *text)
{
    if (!text)
        usage();
    if (strcmp(text, "on") == 0)
        return FAULT_ALWAYS;
    if (strcmp(text, "off") == 0)
        return 0;
    return (int32_t)number(text);
}

static int fault_kind_of(const char *word)
{
    static const char *const kinds[] = {"lose-reply", "lose-request", "unreachable", "refuse",
                                        "hang"};

    for (int kind = 0; kind < FAULT_KINDS; kind++)
        if (strcmp(word, kinds[kind]) == 0)
            return kind;
    return -1;
}

static void print_counts(struct faults *faults)
{
    for (int call = 0; call < FAULT_CALLS; call++)
        printf("%s %" PRIu64 "\n", fault_call_name(call), faults_count(faults, call));
}

static void run(struct faults *faults, char **args)
{
    const char *word = *args++;
    int kind = fault_kind_of(word);

    if (kind >= 0) {
        int call = take_call(&args);

        faults_set(faults, (enum fault_kind)kind, call, count_of(*args));
    } else if (strcmp(word, "delay") == 0) {
        int call = take_call(&args);

        faults_delay(faults, call, number(*args));
    } else if (strcmp(word, "grant-twice") == 0) {
        faults_grant_twice(faults, count_of(*args) != 0);
    } else if (strcmp(word, "clear") == 0) {
        faults_clear(faults);
    } else if (strcmp(word, "advance") == 0) {
        faults_advance(faults, number(*args));
    } else if (strcmp(word, "expire") == 0) {
        printf("%d\n", faults_expire(faults, *args));
    } else if (strcmp(word, "counts") == 0 && !*args) {
        print_counts(faults);
    } else if (strcmp(word, "counts") == 0 && strcmp(*args, "reset") == 0) {
        faults_reset_counts(faults);
    } else {
        usage();
    }
}

int main(int argc, char **argv)
{
    struct faults *faults;

    if (argc < 3)
        usage();
    faults = faults_open(argv[1]);
    if (!faults) {
        fprintf(stderr, "hf-faults: cannot open %s\n", argv[1]);
        return 1;
    }
    run(faults, argv + 2);
    faults_close(faults);
    return 0;
}
