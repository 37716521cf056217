/* users_text.h: the text of holdfastd's users file, line by line, so that a change of one user leaves all other lines as they are:
 * comments, blank lines and order too. Pure: users_store.h reads and writes the file. */
#ifndef CLI_USERS_TEXT_H
#define CLI_USERS_TEXT_H

#include "base/users_file.h"

#include <stdbool.h>
#include <stddef.h>

#define USERS_NOBODY (-1) /* no such user; a line before the first */
#define USERS_SAME 1      /* of a change: it would change nothing */

struct users_row {
    char *text;  /* without its end */
    char *value; /* of a setting; NULL: a comment, or blank */
    enum users_kind kind;
    int user; /* by number, from 0 */
};

struct users_text {
    const char *path; /* for the words; borrowed */
    struct users_row *rows;
    size_t count, room;
    struct users_reader reader; /* the users' names */
};

/* Copies the bytes. HF_OK; HF_EINVAL: the file and line, and what is wrong; HF_ENOMEM. */
int users_text_read(const char *path, const char *bytes, size_t size, struct users_text **ret_text,
                    struct error_text *err);
/* NULL is fine. */
void users_text_free(struct users_text *text);
/* What it is now; to be freed. NULL: no memory. */
char *users_text_bytes(const struct users_text *text, size_t *ret_size);

/* USERS_NOBODY: there is none. */
int users_text_find(const struct users_text *text, const char *name);
unsigned users_text_count(const struct users_text *text, int user, enum users_kind kind);
/* The next setting of this kind from row `at` on; text->count: there is none. */
size_t users_text_next(const struct users_text *text, int user, enum users_kind kind, size_t at);

/* ---- changes: HF_OK, or HF_ENOMEM, or as said ------------------------------------------------------
 *
 * What they make is to be read again, by users_text_read, before it is believed: only that checks it all. After one of them the rows serve
 * for users_text_bytes alone. */

/* Behind all others. limits: NULL is none. */
int users_text_add(struct users_text *text, const char *name, const char *hash,
                   const char *const *allows, size_t allow_count,
                   const char *const limits[USERS_LIMITS], struct error_text *err);
int users_text_remove(struct users_text *text, int user, struct error_text *err);
/* In place of all he has, or of all but the newest. */
int users_text_set_password(struct users_text *text, int user, const char *hash, bool keep,
                            struct error_text *err);
/* All but the newest. USERS_SAME: there is no older one. */
int users_text_drop_old(struct users_text *text, int user, struct error_text *err);
/* USERS_SAME: such a line is there already. */
int users_text_allow(struct users_text *text, int user, const char *value, struct error_text *err);
/* Takes verbs away, or these patterns of them as they are written. USERS_SAME: none of them is there. HF_EINVAL: he has the right on all
 * names, from which a pattern cannot be taken. */
int users_text_deny(struct users_text *text, int user, const char *value, struct error_text *err);

#endif
