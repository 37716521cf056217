/* replay.h: what `holdfast once` keeps of a run, as bytes. holdfast-once(1) has the table. */
#ifndef CLI_REPLAY_H
#define CLI_REPLAY_H

#include <holdfast/once.h>
#include <stdbool.h>
#include <stddef.h>

#define REPLAY_HEADER 8
#define REPLAY_OUTPUT_MAX (HF_ONCE_RESULT_MAX - REPLAY_HEADER) /* bytes of both outputs together */

struct replay {
    int status;    /* the exit status, 0 to 255 */
    bool left_out; /* there was too much output: it was not kept */
    const char *out,
        *err; /* not terminated; of a replay that was read, within what it was read from */
    size_t out_size, err_size;
};

/* Into REPLAY_HEADER + out_size + err_size bytes, which are at most HF_ONCE_RESULT_MAX. */
void replay_write(const struct replay *replay, char *ret_bytes);
/* False: these bytes are not ours. */
bool replay_read(const void *bytes, size_t size, struct replay *ret_replay);

#endif
