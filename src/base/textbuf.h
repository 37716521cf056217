/* textbuf.h: text that grows while it is written. Memory that runs out is noted, and found by whoever wants the text: what is written
 * after that is lost. Begin with {0}. */
#ifndef BASE_TEXTBUF_H
#define BASE_TEXTBUF_H

#include <stdbool.h>
#include <stddef.h>

struct textbuf {
    char *bytes; /* no NUL at the end */
    size_t size, capacity;
    bool failed;
};

void textbuf_bytes(struct textbuf *text, const char *bytes, size_t size);
void textbuf_words(struct textbuf *text, const char *words);
void textbuf_format(struct textbuf *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void textbuf_free(struct textbuf *text);

#endif
