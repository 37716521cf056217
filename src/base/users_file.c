/* users_file.c: see users_file.h. */
#include "base/users_file.h"

#include "base/suggest.h"
#include "base/text.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define SHOWN_MAX 40 /* bytes of a word that is quoted */
#define BLANKS " \t"
#define LETTERS "abcdefghijklmnopqrstuvwxyz"

const char *const users_verb_words[USERS_VERBS] = {"acquire", "look", "break", "floor", "admin"};

/* ---- names and passwords ------------------------------------------------------------------------ */

int users_file_name(const char *name, struct error_text *err)
{
    static const char allowed[] = LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._@-";
    size_t length = strlen(name);

    if (length == 0)
        return error_set(err, HF_EINVAL, "a user's name is not empty");
    if (length > USERS_NAME_MAX)
        return error_set(err, HF_EINVAL, "a user's name has at most %u letters", USERS_NAME_MAX);
    if (strspn(name, allowed) != length)
        return error_set(err, HF_EINVAL,
                         "'%.*s' is no user's name: it has letters (a to z, A to Z), digits, and "
                         "the four . _ @ -",
                         SHOWN_MAX, name);
    return HF_OK;
}

/* Whoever wrote the password itself there must be told, and it must not be shown. */
int users_file_hash(const char *hash, struct error_text *err)
{
    size_t length = strlen(hash), method = strcspn(hash + (*hash == '$'), "$");
    bool has_form = hash[0] == '$' && method > 0 && hash[1 + method] == '$' && hash[2 + method];

    for (size_t i = 0; i < length && has_form; i++)
        has_form = hash[i] > ' ' && hash[i] < 127 && !strchr(":;*!\\", hash[i]);
    if (!has_form || length > USERS_HASH_MAX)
        return error_set(err, HF_EINVAL,
                         "the password is not in the form of crypt(5), as $y$...: 'holdfast user "
                         "password NAME' makes it");
    return HF_OK;
}

int users_file_certificate(const char *name, struct error_text *err)
{
    size_t length = strlen(name);

    if (length == 0 || length > USERS_CERTIFICATE_MAX)
        return error_set(err, HF_EINVAL, "the name of a certificate has 1 to %u bytes",
                         USERS_CERTIFICATE_MAX);
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)name[i] < ' ' || name[i] == 127)
            return error_set(err, HF_EINVAL, "the name of a certificate has a control character");
    if (strchr(name, '*'))
        return error_set(err, HF_EINVAL, "the name of a certificate is no pattern: write it whole");
    return HF_OK;
}

int users_file_limit(enum users_kind kind, const char *value, uint32_t *ret_number,
                     struct error_text *err)
{
    static const uint32_t maxima[USERS_LIMITS] = {USERS_CONNECTIONS_MAX, USERS_LEASES_MAX,
                                                  USERS_CLAIMS_MAX, USERS_CLAIMS_MAX};
    uint32_t max = maxima[USERS_LIMIT(kind)];
    uint64_t number;

    if (!text_to_u64(value, max, &number) || number == 0)
        return error_set(err, HF_EINVAL, "%s is a number from 1 to %u, not '%.*s'",
                         users_file_word(kind), max, SHOWN_MAX, value);
    *ret_number = (uint32_t)number;
    return HF_OK;
}

/* ---- rights -------------------------------------------------------------------------------------- */

static int bad_verb(const char *word, size_t size, struct error_text *err)
{
    char typed[SHOWN_MAX + 1];
    const char *near;

    snprintf(typed, sizeof typed, "%.*s", (int)size, word);
    near = suggest_nearest(typed, users_verb_words, USERS_VERBS);
    if (near)
        return error_set(err, HF_EINVAL, "unknown verb '%s': did you mean '%s'?", typed, near);
    if (strspn(typed, LETTERS) != strlen(typed))
        return error_set(err, HF_EINVAL,
                         "'%s' is no verb: patterns of names come after a colon, as in 'acquire "
                         "look: jobs/*'",
                         typed);
    return error_set(err, HF_EINVAL,
                     "unknown verb '%s': there are acquire, look, break, floor and admin", typed);
}

/* From the beginning of the value to the colon, or its end. */
static int take_verbs(const char *at, const char *end, unsigned *ret_verbs, struct error_text *err)
{
    unsigned verbs = 0;

    for (;;) {
        size_t size;
        unsigned i = 0;

        at += strspn(at, BLANKS);
        if (at >= end)
            break;
        size = strcspn(at, BLANKS ":");
        while (i < USERS_VERBS &&
               (strlen(users_verb_words[i]) != size || memcmp(users_verb_words[i], at, size) != 0))
            i++;
        if (i == USERS_VERBS)
            return bad_verb(at, size, err);
        verbs |= 1u << i;
        at += size;
    }
    if (verbs == 0)
        return error_set(err, HF_EINVAL,
                         "what is allowed is missing: acquire, look, break, floor or admin");
    *ret_verbs = verbs;
    return HF_OK;
}

/* A class that nobody ends is a slip of the pen, and would match what nobody meant. */
static bool has_open_class(const char *pattern, size_t size)
{
    bool open = false;

    for (size_t i = 0; i < size; i++) {
        if (pattern[i] == '\\')
            i++;
        else if (pattern[i] == (open ? ']' : '['))
            open = !open;
    }
    return open;
}

static int check_pattern(const char *pattern, size_t size, struct error_text *err)
{
    if (size > HF_NAME_MAX)
        return error_set(err, HF_EINVAL, "the pattern %.*s... has more than %d bytes", SHOWN_MAX,
                         pattern, HF_NAME_MAX);
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)pattern[i] < ' ' || pattern[i] == 127)
            return error_set(err, HF_EINVAL,
                             "a pattern has a control character: write ? in its place");
    if (*pattern == '#')
        return error_set(err, HF_EINVAL,
                         "a pattern cannot begin with #, which begins a comment: write [#]");
    if (has_open_class(pattern, size))
        return error_set(err, HF_EINVAL, "the pattern %.*s has a [ without its ]",
                         (int)(size < SHOWN_MAX ? size : SHOWN_MAX), pattern);
    return HF_OK;
}

static int take_patterns(const char *at, struct users_allow *allow, struct error_text *err)
{
    for (;;) {
        size_t size;

        at += strspn(at, BLANKS);
        if (!*at)
            break;
        if (allow->pattern_count == USERS_GRANTS_MAX)
            return error_set(err, HF_EINVAL, "more than %u patterns", USERS_GRANTS_MAX);
        size = strcspn(at, BLANKS);
        if (check_pattern(at, size, err) != HF_OK)
            return HF_EINVAL;
        allow->patterns[allow->pattern_count++] = (struct users_pattern){at, size};
        at += size;
    }
    if (allow->pattern_count == 0)
        return error_set(err, HF_EINVAL,
                         "no pattern after the colon: leave the colon out for all names");
    if (allow->verbs & USERS_NAMELESS)
        return error_set(err, HF_EINVAL,
                         "%s has no names: write it on an allow line of its own, without a colon",
                         allow->verbs & USERS_FLOOR ? "floor" : "admin");
    return HF_OK;
}

int users_file_allow(const char *value, struct users_allow *ret_allow, struct error_text *err)
{
    struct users_allow allow = {0};
    const char *colon = strchr(value, ':');
    int result = take_verbs(value, colon ? colon : value + strlen(value), &allow.verbs, err);

    if (result == HF_OK && colon)
        result = take_patterns(colon + 1, &allow, err);
    if (result == HF_OK)
        *ret_allow = allow;
    return result;
}

/* ---- the whole file ------------------------------------------------------------------------------ */

static const char *const kinds[] = {[USERS_USER] = "user",
                                    [USERS_PASSWORD] = "password",
                                    [USERS_RIGHTS] = "allow",
                                    [USERS_CERTIFICATE] = "certificate",
                                    [USERS_CONNECTIONS] = "connections",
                                    [USERS_LEASES] = "leases",
                                    [USERS_HOLDS] = "holds",
                                    [USERS_PLACES] = "places"};
#define KIND_COUNT (sizeof kinds / sizeof *kinds)

const char *users_file_word(enum users_kind kind)
{
    return kinds[kind];
}

static int find_kind(const char *name, enum users_kind *ret_kind, struct error_text *err)
{
    const char *near;

    for (unsigned i = 0; i < KIND_COUNT; i++)
        if (strcmp(name, kinds[i]) == 0) {
            *ret_kind = (enum users_kind)i;
            return HF_OK;
        }
    near = suggest_nearest(name, kinds, KIND_COUNT);
    if (near)
        return error_set(err, HF_EINVAL, "unknown name '%.*s': did you mean '%s'?", SHOWN_MAX, name,
                         near);
    return error_set(err, HF_EINVAL,
                     "unknown name '%.*s': there are user, password, allow, connections, leases, "
                     "holds, places and certificate",
                     SHOWN_MAX, name);
}

static int begin_user(struct users_reader *reader, const char *name, struct error_text *err)
{
    int result = users_file_name(name, err);

    if (result != HF_OK)
        return result;
    if (reader->count == USERS_MAX)
        return error_set(err, HF_EINVAL, "more than %u users", USERS_MAX);
    for (size_t i = 0; i < reader->count; i++)
        if (strcmp(reader->names[i], name) == 0)
            return error_set(err, HF_EINVAL, "the user %s is there twice", name);
    snprintf(reader->names[reader->count++], sizeof reader->names[0], "%s", name);
    reader->passwords = reader->grants = reader->certificates = 0;
    memset(reader->limits, 0, sizeof reader->limits);
    return HF_OK;
}

static int take_password(struct users_reader *reader, const char *hash, struct error_text *err)
{
    int result = users_file_hash(hash, err);

    if (result == HF_OK && reader->passwords == USERS_PASSWORDS_MAX)
        result = error_set(err, HF_EINVAL, "more than two passwords");
    reader->passwords += result == HF_OK;
    return result;
}

static int take_rights(struct users_reader *reader, const char *value,
                       struct users_allow *ret_allow, struct error_text *err)
{
    int result = users_file_allow(value, ret_allow, err);
    size_t grants;

    if (result != HF_OK)
        return result;
    grants = ret_allow->pattern_count > 0 ? ret_allow->pattern_count : 1;
    if (grants > USERS_GRANTS_MAX - reader->grants)
        return error_set(err, HF_EINVAL, "more than %u patterns", USERS_GRANTS_MAX);
    reader->grants += grants;
    return HF_OK;
}

static int take_limit(struct users_reader *reader, enum users_kind kind, const char *value,
                      uint32_t *ret_number, struct error_text *err)
{
    uint32_t *limit = &reader->limits[USERS_LIMIT(kind)];
    int result = users_file_limit(kind, value, ret_number, err);

    if (result == HF_OK && *limit != 0)
        result = error_set(err, HF_EINVAL, "%s is there twice", users_file_word(kind));
    if (result == HF_OK)
        *limit = *ret_number;
    return result;
}

static int take_certificate(struct users_reader *reader, const char *name, struct error_text *err)
{
    int result = users_file_certificate(name, err);

    if (result == HF_OK && reader->certificates == USERS_CERTIFICATES_MAX)
        result = error_set(err, HF_EINVAL, "more than %u certificates", USERS_CERTIFICATES_MAX);
    reader->certificates += result == HF_OK;
    return result;
}

static int take(struct users_reader *reader, const struct conf_line *conf, struct users_line *line,
                struct error_text *err)
{
    int result = find_kind(conf->name, &line->kind, err);

    if (result != HF_OK)
        return result;
    if (line->kind != USERS_USER && reader->count == 0)
        return error_set(err, HF_EINVAL, "%s is nobody's: 'user = NAME' comes first", conf->name);
    switch (line->kind) {
    case USERS_USER:
        return begin_user(reader, conf->value, err);
    case USERS_PASSWORD:
        return take_password(reader, conf->value, err);
    case USERS_RIGHTS:
        return take_rights(reader, conf->value, &line->allow, err);
    case USERS_CERTIFICATE:
        return take_certificate(reader, conf->value, err);
    case USERS_CONNECTIONS:
    case USERS_LEASES:
    case USERS_HOLDS:
    case USERS_PLACES:
        return take_limit(reader, line->kind, conf->value, &line->number, err);
    }
    return HF_EINVAL;
}

int users_file_take(struct users_reader *reader, const struct conf_line *line,
                    struct users_line *ret_line, struct error_text *err)
{
    struct users_line taken = {.value = line->value};
    struct error_text why = {""};

    if (take(reader, line, &taken, &why) != HF_OK)
        return error_set(err, HF_EINVAL, "%s:%u: %s", line->path, line->number, why.text);
    *ret_line = taken;
    return HF_OK;
}
