/* backup_image.h: the backup that is restored, where it is a file that 'holdfast cluster backup' has written (base/backup_file.h). Each byte of it is
 * checked before anything is made of it. */
#ifndef NODE_BACKUP_IMAGE_H
#define NODE_BACKUP_IMAGE_H

#include "journal/directory.h"
#include "replica/replica.h"

struct backup_image {
    unsigned char *bytes; /* of all of the file; the caller's */
    size_t head_size;     /* of the snapshot, before its table */
    const unsigned char *head;
    struct replica_snapshot snapshot; /* its table is in the bytes */
};

/* Is there a file, and not a directory, or nothing? */
bool backup_image_is_file(const char *path);
/* HF_EREFUSED: it cannot be opened, or is no backup. HF_EIO: it is damaged, cut off, or cannot be read. HF_ENOMEM. All in words;
 * backup_image_free afterwards, whatever comes out. */
int backup_image_load(const char *path, struct backup_image *ret_image, struct error_text *err);
/* The same of bytes, which stay the caller's. */
int backup_image_parse(const unsigned char *bytes, size_t size, const char *path,
                       struct backup_image *ret_image, struct error_text *err);
/* As files of a data directory, durably: a snapshot, and a term. */
int backup_image_unpack(const struct backup_image *image, const struct directory *target,
                        struct error_text *err);
void backup_image_free(struct backup_image *image);

#endif
