/* json_text.h: JSON into a text that grows. Keys are ours; what stands behind them may come from anybody. */
#ifndef SERVER_JSON_TEXT_H
#define SERVER_JSON_TEXT_H

#include "base/textbuf.h"

#include <stdbool.h>
#include <stdint.h>

#define JSON_TEXT_DEPTH_MAX 8

struct json_text {
    struct textbuf out;
    unsigned depth;
    bool comma[JSON_TEXT_DEPTH_MAX]; /* something came before, on this level */
};

/* key NULL: within an array, or the whole. */
void json_text_open(struct json_text *json, const char *key, char bracket);
void json_text_close(struct json_text *json, char bracket);
/* Bytes that are not UTF-8 become U+FFFD, and what a browser or a terminal might obey is escaped. */
void json_text_string(struct json_text *json, const char *key, const char *bytes, size_t size);
void json_text_words(struct json_text *json, const char *key, const char *words);
void json_text_number(struct json_text *json, const char *key, int64_t number);
void json_text_bool(struct json_text *json, const char *key, bool value);

#endif
