/* replay.c
 *
 *     byte 0      1, the version
 *     byte 1      the exit status
 *     byte 2      1: the outputs were too long and were left out; else 0
 *     byte 3      0
 *     bytes 4-7   how many bytes of stdout follow, the highest byte first
 *     then        stdout, and after it stderr to the end */
#include "cli/replay.h"

#include <stdint.h>
#include <string.h>

#define VERSION 1

void replay_write(const struct replay *replay, char *ret_bytes)
{
    unsigned char header[REPLAY_HEADER] = {VERSION, (unsigned char)replay->status,
                                           replay->left_out ? 1 : 0};

    for (int i = 0; i < 4; i++)
        header[4 + i] = (unsigned char)((uint32_t)replay->out_size >> (24 - 8 * i));
    memcpy(ret_bytes, header, sizeof header);
    if (replay->out_size > 0)
        memcpy(ret_bytes + REPLAY_HEADER, replay->out, replay->out_size);
    if (replay->err_size > 0)
        memcpy(ret_bytes + REPLAY_HEADER + replay->out_size, replay->err, replay->err_size);
}

bool replay_read(const void *bytes, size_t size, struct replay *ret_replay)
{
    const unsigned char *header = bytes;
    size_t out_size = 0;

    if (size < REPLAY_HEADER || header[0] != VERSION || header[2] > 1 || header[3] != 0)
        return false;
    for (int i = 0; i < 4; i++)
        out_size = out_size << 8 | header[4 + i];
    if (out_size > size - REPLAY_HEADER || (header[2] == 1 && size > REPLAY_HEADER))
        return false;
    *ret_replay = (struct replay){.status = header[1],
                                  .left_out = header[2] == 1,
                                  .out = (const char *)header + REPLAY_HEADER,
                                  .out_size = out_size,
                                  .err = (const char *)header + REPLAY_HEADER + out_size,
                                  .err_size = size - REPLAY_HEADER - out_size};
    return true;
}
