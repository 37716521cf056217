/* page.h: the files of the page, as they are in src/admin/page: tools/embed-page makes a table of them when the module is built. */
#ifndef ADMIN_PAGE_H
#define ADMIN_PAGE_H

#include <stddef.h>

struct page_file {
    const char *path; /* "/" or "/NAME" */
    const char *type;
    const unsigned char *bytes;
    size_t size;
};
extern const struct page_file page_files[];
extern const size_t page_file_count;

#endif
