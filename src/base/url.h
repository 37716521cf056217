/* url.h: taking a store URL apart. scheme:rest?key=value&key=value, values percent-encoded. What
 * `rest` means is the engine's business. */
#ifndef BASE_URL_H
#define BASE_URL_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

#define URL_PARAMETERS_MAX 16
#define URL_ASKED_MAX 32 /* options that one store has: more are not suggested */

struct url_parameter {
    const char *key, *value; /* the value decoded */
    bool used;               /* somebody asked for it; what nobody asked for is an error */
};

struct url {
    char text[HF_URL_MAX + 1]; /* storage for the parts */
    const char *scheme;        /* "file" */
    const char *rest;          /* between the colon and the question mark, still encoded */
    struct url_parameter parameters[URL_PARAMETERS_MAX];
    int parameter_count;
    const char *asked[URL_ASKED_MAX]; /* options that somebody asked for, there or not */
    int asked_count;
};

int url_parse(const char *text, struct url *ret_url, struct error_text *err);
/* NULL if absent. Marks it as used. The key is borrowed for as long as the url lives. */
const char *url_get(struct url *url, const char *key);
/* Leaves *ret_ms alone if the parameter is absent. */
int url_get_ms(struct url *url, const char *key, int64_t min_ms, int64_t max_ms, int64_t *ret_ms,
               struct error_text *err);
/* HF_EINVAL naming a parameter that nobody asked for, and the one that was perhaps meant. */
int url_check_all_used(const struct url *url, struct error_text *err);

/* The URL as it may be shown, and handed to a job: without whatever could be a password, also in a URL that is the value of an option
 * (?listen=postgres://...). The rest stays as it was written. A longer text than HF_URL_MAX is cut there. */
void url_without_passwords(const char *text, char ret_text[HF_URL_MAX + 1]);

#endif
