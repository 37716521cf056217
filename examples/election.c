/* Electing a leader: a lock whose owner others can see. */
#include "example.h"

#include <inttypes.h>

int main(int argc, char **argv)
{
    hf_store *store = example_store(argc, argv);
    hf_options options = HF_OPTIONS_INIT;
    hf_lock *mandate, *rival;
    hf_report *report;

    options.owner = "node-1"; /* what the others see */
    MUST(hf_campaign(store, "example/leader", &options, &mandate));
    printf("node-1 leads, term %" PRIu64 "\n", hf_lock_token(mandate));

    MUST(hf_show(store, "example/leader", &report));
    EXPECT(hf_report_count(report) == 1);
    printf("everybody can see: %s leads\n", hf_report_entry(report, 0)->owner);
    hf_report_free(report);

    options.owner = "node-2";
    options.wait_ms = 100;
    EXPECT(hf_campaign(store, "example/leader", &options, &rival) == HF_EBUSY);

    MUST(hf_resign(mandate));
    MUST(hf_campaign(store, "example/leader", &options, &rival));
    printf("node-1 resigned, node-2 leads, term %" PRIu64 "\n", hf_lock_token(rival));
    MUST(hf_resign(rival));
    hf_close(store);
    return 0;
}
