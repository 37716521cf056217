/* text.h: turning outside text into values, strictly, and values into printable text. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Digits only, no sign, no blanks, at most `max`. */
bool text_to_u64(const char *text, uint64_t max, uint64_t *ret_value);

/* "500ms", "30s", "10m", "2h", "1d"; several of them from the largest on, as in "5m30s"; a bare number is seconds; a fraction
 * in the last of them, as in "1.5s". At most HF_DURATION_MAX_MS. Never negative. */
bool text_to_ms(const char *text, int64_t *ret_ms);
/* The reverse, for people: "250 ms", "3.2 s", "5 min 3 s", "2 h 4 min", "3 d 1 h". */
#define TEXT_SPAN_MAX 32
void text_from_ms(int64_t ms, char ret_text[TEXT_SPAN_MAX]);
/* The same as text_to_ms reads it: "366d", "90s"; "0". For limits, which somebody may type. */
void text_duration(int64_t ms, char ret_text[TEXT_SPAN_MAX]);

/* "a" or "an", as goes before the word. */
const char *text_article(const char *word);
/* "an etcd store", "a postgres store with mode=row": in what is said about what it can do. */
struct text_kind {
    char text[80];
};
struct text_kind text_kind(const hf_store_info *info);

/* Percent-encoding: letters, digits and the bytes of `keep` stay, all others become %xx. Returns
 * the length without the NUL; when that is >= size the output was cut (and is still terminated). */
size_t text_percent_encode(const char *bytes, size_t length, const char *keep, char *ret_text,
                           size_t size);
/* In place allowed. False for a malformed escape, an escaped NUL or too little room. */
bool text_percent_decode(const char *text, size_t length, char *ret_bytes, size_t size);

/* Lower-case hex; needs 2 * size + 1 bytes. */
void text_hex(const void *bytes, size_t size, char *ret_text);

bool text_is_utf8(const char *bytes, size_t length);

/* HF_OK, or HF_EINVAL with a message naming the limit. */
int text_check_name(const char *name, struct error_text *err);
int text_check_key(const char *key,
                   struct error_text *err); /* of a once-record: the same, in other words */

#endif
