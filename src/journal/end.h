/* end.h: the file "end", a mark: so far the log goes, at least.
 *
 * It is stored when a journal begins (what was read is what the node has; in a new directory before the first segment is made, so
 * that a log without it is refused), when a segment begins (so that one which is lost is missed), and when it is stopped. Before the
 * segments of a reset are removed it says that they are void: a crash may leave any of them. It need not be taken away before the next append: that makes the log longer, and the mark stays true. So
 * there is no moment at which a crash could leave a wrong one; and a copy of the directory is as good as the directory. */
#ifndef JOURNAL_END_H
#define JOURNAL_END_H

#include "journal/directory.h"

#define END_FILE "end"

struct end {          /* the last record */
    bool known;       /* there is such a file */
    bool open;        /* more may have been appended behind it, in the same segment */
    uint64_t segment; /* that it is in */
    uint64_t
        group; /* 0: there is no record, and what is in that segment and in those before it is void */
    uint64_t index;
    uint32_t checksum;
};

/* HF_EIO: it is damaged, or cannot be read. */
int end_load(const struct directory *directory, struct end *ret_end, struct error_text *err);
/* Durable when it returns. */
int end_store(const struct directory *directory, const struct end *end, struct error_text *err);
bool end_is_same(const struct end *one, const struct end *other);

#endif
