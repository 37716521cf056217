/* json.h: writing JSON, one object per line, to stdout. Keys are ours; values come from outside. */
#ifndef CLI_JSON_H
#define CLI_JSON_H

#include "cli/cli.h"

#define JSON_DEPTH_MAX 8

struct json {
    int depth;
    bool comma[JSON_DEPTH_MAX]; /* something came before on this level */
};

/* Starts an object at the beginning of a line; json_end ends it with the newline and flushes, so
 * that a reader of a pipe sees each object when it happens. */
void json_begin(struct json *json);
void json_end(struct json *json);

/* key NULL inside an array. */
void json_object(struct json *json, const char *key);
void json_array(struct json *json, const char *key);
void json_close(struct json *json, char bracket);
/* Bytes that are not UTF-8 are shown as U+FFFD. text NULL: null. */
void json_string(struct json *json, const char *key, const char *text);
void json_u64(struct json *json, const char *key, uint64_t value);
/* So many digits behind the point. */
void json_real(struct json *json, const char *key, double value, int digits);
/* -1 (not known) and HF_UNLIMITED become null. */
void json_ms(struct json *json, const char *key, int64_t ms);
void json_bool(struct json *json, const char *key, bool value);
/* Text under a key that is a name or the like; key_b64 as well if it is not UTF-8: key has 1 to 32
 * letters. */
void json_text(struct json *json, const char *key, const char *text);
/* "name", and "name_b64" as well if it is not UTF-8: what stands in "name" is then for the eye
 * only. */
void json_name(struct json *json, const char *name);
/* The fields of a holder or waiter, without the name. */
void json_entry(struct json *json, const hf_entry *entry);

#endif
