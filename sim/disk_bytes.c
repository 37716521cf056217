/* disk_bytes.c: the bytes of a file, by pages which copies of it share until one of them changes. A segment is mostly zeros, and each of its
 * bytes is in what it is now, in what is durable, and in what was written since. */
#include "base/error.h"
#include "sim/disk_inside.h"

#include <stdlib.h>
#include <string.h>

static size_t pages_for(size_t size)
{
    return (size + PAGE_BYTES - 1) / PAGE_BYTES;
}

/* Until the next disk ends pages are kept that nobody uses: each write wants one, and frees another. */
static _Thread_local struct page *spare;

static void page_drop(struct page *page)
{
    if (!page || --page->users > 0)
        return;
    page->next = spare;
    spare = page;
}

static struct page *page_new(void)
{
    struct page *page = spare;

    if (page)
        spare = page->next;
    else
        page = malloc(sizeof *page);
    INVARIANT(page != NULL);
    page->users = 1;
    return page;
}

void bytes_forget(void)
{
    while (spare) {
        struct page *page = spare;

        spare = page->next;
        free(page);
    }
}

/* Is now the same as the other one, which may be NULL. */
static void page_share(struct page **page, struct page *other)
{
    if (*page == other)
        return;
    page_drop(*page);
    *page = other;
    if (other)
        other->users++;
}

/* To be written over in part: nobody else's. */
static unsigned char *page_own(struct page **page)
{
    struct page *old = *page;

    if (old && old->users == 1)
        return old->at;
    *page = page_new();
    if (old)
        memcpy((*page)->at, old->at, PAGE_BYTES);
    else
        memset((*page)->at, 0, PAGE_BYTES);
    page_drop(old);
    return (*page)->at;
}

static bool are_zeros(const unsigned char *at, size_t size)
{
    return at[0] == 0 && memcmp(at, at + 1, size - 1) == 0;
}

/* All of it is written over. */
static void page_put(struct page **page, const unsigned char *from)
{
    if (are_zeros(from, PAGE_BYTES)) {
        page_share(page, NULL);
        return;
    }
    if (!*page || (*page)->users > 1) {
        page_drop(*page);
        *page = page_new();
    }
    memcpy((*page)->at, from, PAGE_BYTES);
}

/* ---- all of them ------------------------------------------------------------------------------ */

/* Pages that are NULL: as long as nothing is in them they are zeros. */
static void set_pages(struct bytes *bytes, size_t count)
{
    for (size_t i = count; i < bytes->page_count; i++)
        page_drop(bytes->pages[i]);
    if (count > bytes->page_room) {
        bytes->page_room = count > 2 * bytes->page_room ? count : 2 * bytes->page_room;
        bytes->pages = realloc(bytes->pages, bytes->page_room * sizeof(struct page *));
        INVARIANT(bytes->pages != NULL);
    }
    for (size_t i = bytes->page_count; i < count; i++)
        bytes->pages[i] = NULL;
    bytes->page_count = count;
}

void bytes_resize(struct bytes *bytes, size_t size)
{
    size_t kept = size % PAGE_BYTES;
    bool shrinks = size < bytes->size;

    set_pages(bytes, pages_for(size));
    bytes->size = size;
    if (shrinks && kept > 0 && bytes->pages[bytes->page_count - 1]) /* for when it grows again */
        memset(page_own(&bytes->pages[bytes->page_count - 1]) + kept, 0, PAGE_BYTES - kept);
}

void bytes_put(struct bytes *bytes, uint64_t offset, const void *from, size_t size)
{
    const unsigned char *at = from;

    if (size == 0)
        return;
    if (offset + size > bytes->size)
        bytes_resize(bytes, offset + size);
    while (size > 0) {
        struct page **page = &bytes->pages[offset / PAGE_BYTES];
        size_t skipped = offset % PAGE_BYTES, piece = PAGE_BYTES - skipped;

        if (piece > size)
            piece = size;
        if (piece == PAGE_BYTES)
            page_put(page, at);
        else if (*page || !are_zeros(at, piece))
            memcpy(page_own(page) + skipped, at, piece);
        at += piece;
        offset += piece;
        size -= piece;
    }
}

void bytes_put_same(struct bytes *bytes, const struct bytes *from, uint64_t offset, size_t size)
{
    if (size == 0)
        return;
    if (offset + size > bytes->size)
        bytes_resize(bytes, offset + size);
    while (size > 0) {
        size_t i = offset / PAGE_BYTES, skipped = offset % PAGE_BYTES, piece = PAGE_BYTES - skipped;
        const struct page *page = from->pages[i];

        if (piece > size)
            piece = size;
        if (piece == PAGE_BYTES)
            page_share(&bytes->pages[i], from->pages[i]);
        else if (page)
            memcpy(page_own(&bytes->pages[i]) + skipped, page->at + skipped, piece);
        else if (bytes->pages[i])
            memset(page_own(&bytes->pages[i]) + skipped, 0, piece);
        offset += piece;
        size -= piece;
    }
}

void bytes_get(const struct bytes *bytes, uint64_t offset, void *to, size_t size)
{
    unsigned char *at = to;

    while (size > 0) {
        const struct page *page = bytes->pages[offset / PAGE_BYTES];
        size_t skipped = offset % PAGE_BYTES, piece = PAGE_BYTES - skipped;

        if (piece > size)
            piece = size;
        if (page)
            memcpy(at, page->at + skipped, piece);
        else
            memset(at, 0, piece);
        at += piece;
        offset += piece;
        size -= piece;
    }
}

void bytes_take(struct bytes *bytes, const struct bytes *from)
{
    set_pages(bytes, from->page_count);
    for (size_t i = 0; i < from->page_count; i++)
        page_share(&bytes->pages[i], from->pages[i]);
    bytes->size = from->size;
}

void bytes_take_pages(struct bytes *bytes, const struct bytes *from, uint64_t offset, size_t size)
{
    size_t first = offset / PAGE_BYTES;

    set_pages(bytes, pages_for(offset + size) - first);
    for (size_t i = 0; i < bytes->page_count; i++)
        page_share(&bytes->pages[i], from->pages[first + i]);
    bytes->size = bytes->page_count * PAGE_BYTES;
}

void bytes_flip(struct bytes *bytes, uint64_t bit)
{
    uint64_t at = bit / 8;

    page_own(&bytes->pages[at / PAGE_BYTES])[at % PAGE_BYTES] ^= (unsigned char)(1u << bit % 8);
}

void bytes_free(struct bytes *bytes)
{
    set_pages(bytes, 0);
    free(bytes->pages);
    *bytes = (struct bytes){NULL};
}
