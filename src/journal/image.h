/* image.h: snapshots on disk, one file each: "snapshot-" and the number of the last entry in it. Only the
 * newest is kept. */
#ifndef JOURNAL_IMAGE_H
#define JOURNAL_IMAGE_H

#include "journal/directory.h"

#include <stddef.h>
#include <sys/uio.h>

struct image {
    uint64_t index, term; /* of the last entry in it; index 0: there is none */
    uint64_t configuration_index;
    struct iovec configuration;
    struct iovec data;
};

/* Durable when it returns HF_OK, and older ones are gone. For any thread, one at a time. */
int image_write(const struct directory *directory, const struct image *image,
                struct error_text *err);
/* The newest; what it points to is the caller's, to be freed by image_free. HF_EIO: it is damaged, or
 * cannot be read. HF_ENOMEM. */
int image_load(const struct directory *directory, struct image *ret_image, struct error_text *err);
void image_free(struct image *image);
/* Removes what was left by an interrupted image_write. */
int image_clean(const struct directory *directory, const struct image *newest,
                struct error_text *err);

#endif
