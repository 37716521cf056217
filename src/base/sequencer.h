/* sequencer.h: a hold as one printable string, for a third party to check.
 *
 *     hf1 . STORE-ID . x|s|p . TOKEN . NAME
 *
 * Store id and name are percent-encoded. The id's dots are encoded too (%2e), so the first four dots
 * of a sequencer are always the ones between its parts; the name comes last and keeps its dots, like
 * - _ ~ / and :, so that the usual names can be read. */
#ifndef BASE_SEQUENCER_H
#define BASE_SEQUENCER_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

#define SEQUENCER_STORE_MAX 64 /* bytes of a store's id */

struct sequencer {
    char store[SEQUENCER_STORE_MAX + 1];
    int mode; /* of enum hf_mode */
    uint64_t token;
    char name[HF_NAME_MAX + 1];
};

/* Returns the length without the NUL, which is below HF_SEQUENCER_MAX. */
size_t sequencer_write(const struct sequencer *sequencer, char ret_text[HF_SEQUENCER_MAX]);
int sequencer_parse(const char *text, size_t size, struct sequencer *ret_sequencer,
                    struct error_text *err);

#endif
