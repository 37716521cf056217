/* once_show.c: holdfast once KEY --show: what is known of a key. */
#include "cli/once_show.h"
#include "cli/json.h"
#include "cli/output.h"
#include "cli/replay.h"

static void show_json(const char *key, const hf_once *once, const struct replay *replay,
                      size_t size)
{
    static const char *const words[] = {"nothing", "running", "done", "died"};
    int state = hf_once_state(once);
    struct json json;

    json_begin(&json);
    json_name(&json, key);
    json_string(&json, "state", words[state]);
    if (hf_once_withheld(once))
        json_bool(&json, "withheld", true);
    if (state != HF_ONCE_NOTHING) {
        json_u64(&json, "token", hf_once_token(once));
        json_ms(&json, "left_ms", hf_once_left_ms(once));
    }
    if (state == HF_ONCE_RUNNING) {
        json_string(&json, "owner", hf_once_owner(once));
        json_ms(&json, "age_ms", hf_once_age_ms(once));
    }
    if (state == HF_ONCE_DONE)
        json_u64(&json, "bytes", size);
    if (replay) {
        json_u64(&json, "status", (uint64_t)replay->status);
        json_bool(&json, "output_kept", !replay->left_out);
        json_u64(&json, "stdout_bytes", replay->out_size);
        json_u64(&json, "stderr_bytes", replay->err_size);
    }
    json_end(&json);
}

static void show_done(const hf_once *once, const struct replay *replay, size_t size)
{
    printf("done, token %llu, kept for another %s: ", (unsigned long long)hf_once_token(once),
           span(hf_once_left_ms(once)));
    if (!replay)
        printf("%zu bytes that 'holdfast once' did not write\n", size);
    else if (replay->left_out)
        printf("exit status %d, its output was too long to be kept\n", replay->status);
    else
        printf("exit status %d, %zu bytes of output, %zu of errors\n", replay->status,
               replay->out_size, replay->err_size);
}

static void show_text(hf_store *store, const char *key, const hf_once *once,
                      const struct replay *replay, size_t size)
{
    hf_entry runner = {
        .owner = hf_once_owner(once), .token = hf_once_token(once), .age_ms = hf_once_age_ms(once)};
    char text[512];

    printf("%s: ", printable(key));
    switch (hf_once_state(once)) {
    case HF_ONCE_RUNNING:
        describe_holder(store, &runner, text, sizeof text);
        printf("run by %s", text);
        if (hf_once_left_ms(once) >= 0 && hf_once_left_ms(once) != HF_UNLIMITED)
            printf(", %s left", span(hf_once_left_ms(once)));
        putchar('\n');
        break;
    case HF_ONCE_DONE:
        show_done(once, replay, size);
        break;
    case HF_ONCE_DIED:
        printf("whoever ran it, with token %llu, died; that is known for another %s\n",
               (unsigned long long)hf_once_token(once), span(hf_once_left_ms(once)));
        break;
    default:
        printf("%s\n", hf_once_withheld(once) ? WITHHELD_RUN : "nothing is known of it");
    }
}

int once_show(struct cli *cli, const char *key)
{
    struct replay replay;
    hf_once *once;
    const void *bytes;
    size_t size = 0;
    bool ours;
    int result = hf_once_read(cli->store, key, &once);

    if (result != HF_OK)
        return say_result(result);
    bytes = hf_once_result(once, &size);
    ours = bytes && replay_read(bytes, size, &replay);
    if (cli->json)
        show_json(key, once, ours ? &replay : NULL, size);
    else
        show_text(cli->store, key, once, ours ? &replay : NULL, size);
    hf_once_free(once);
    return finish_output(EXIT_DONE);
}
