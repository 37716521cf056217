/* token.c: the token in a sequencer, for any guard. */
#include "base/failure.h"
#include "base/sequencer.h"

#include <holdfast/guard.h>
#include <string.h>

int hf_guard_token(const char *sequencer, uint64_t *ret_token)
{
    struct error_text err = {""};
    struct sequencer parsed;
    int result = sequencer_parse(sequencer, sequencer ? strnlen(sequencer, HF_SEQUENCER_MAX) : 0,
                                 &parsed, &err);

    if (result == HF_OK && !ret_token)
        result = error_set(&err, HF_EINVAL, "hf_guard_token: nowhere to put the token");
    if (result == HF_OK && parsed.mode != HF_EXCLUSIVE)
        result = error_set(&err, HF_EINVAL,
                           "not an exclusive token: the sequencer is of a %s, whose tokens fence "
                           "nobody",
                           parsed.mode == HF_SHARED ? "shared hold" : "permit");
    if (result == HF_OK)
        *ret_token = parsed.token;
    return failure_keep(result, &err);
}
