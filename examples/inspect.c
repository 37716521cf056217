/* Looking around: which stores there are, what this one promises, who holds what. */
#include "example.h"

#include <inttypes.h>
#include <string.h>

static void print_engine(const hf_store_info *info, void *arg)
{
    (*(int *)arg)++;
    printf("store %s: %s\n", info->url, info->missing ? info->missing : "ready");
}

static void print_report(const hf_report *report)
{
    for (size_t i = 0; i < hf_report_count(report); i++) {
        const hf_entry *entry = hf_report_entry(report, i);

        printf("  %s: held by %s (pid %" PRId64 "), token %" PRIu64 ", for %" PRId64 " ms\n",
               entry->name, entry->owner, entry->pid, entry->token, entry->age_ms);
    }
}

int main(int argc, char **argv)
{
    hf_store *store = example_store(argc, argv);
    hf_list_options only = HF_LIST_OPTIONS_INIT;
    const hf_store_info *info = hf_info(store);
    hf_lock *one, *two;
    hf_report *report;
    int engines = 0;

    MUST(hf_engines(print_engine, &engines));
    EXPECT(engines >= 1);
    printf("ours is at %s, %s; survives: %s\n", info->where,
           info->exclusion == HF_STRICT ? "strict" : "best effort", info->survives);

    MUST(hf_acquire(store, "example/inspect/one", NULL, &one));
    MUST(hf_acquire(store, "example/inspect/two", NULL, &two));

    only.match = "example/inspect/*";
    MUST(hf_list(store, &only, &report));
    printf("list:\n");
    print_report(report);
    EXPECT(hf_report_count(report) == 2);
    EXPECT(strcmp(hf_report_entry(report, 0)->name, "example/inspect/one") == 0);
    hf_report_free(report);

    MUST(hf_show(store, "example/inspect/two", &report));
    printf("show:\n");
    print_report(report);
    EXPECT(hf_report_entry(report, 0)->token == hf_lock_token(two));
    hf_report_free(report);

    MUST(hf_release(one));
    MUST(hf_release(two));
    hf_close(store);
    return 0;
}
