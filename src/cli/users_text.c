/* users_text.c: see users_text.h. */
#include "cli/users_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLANKS " \t\r"

static int out_of_memory(struct error_text *err)
{
    return error_set(err, HF_ENOMEM, "out of memory");
}

/* ---- reading -------------------------------------------------------------------------------------- */

/* A row at `at`, with text that it takes. */
static bool insert(struct users_text *text, size_t at, char *line)
{
    if (!line)
        return false;
    if (text->count == text->room) {
        size_t room = text->room ? 2 * text->room : 64;
        struct users_row *grown = realloc(text->rows, room * sizeof *grown);

        if (!grown) {
            free(line);
            return false;
        }
        text->rows = grown;
        text->room = room;
    }
    memmove(&text->rows[at + 1], &text->rows[at], (text->count - at) * sizeof *text->rows);
    text->rows[at] = (struct users_row){.text = line, .user = USERS_NOBODY};
    text->count++;
    return true;
}

static bool split(struct users_text *text, const char *bytes, size_t size)
{
    const char *end = bytes + size;

    while (bytes < end) {
        const char *newline = memchr(bytes, '\n', (size_t)(end - bytes));
        const char *stop = newline ? newline : end;

        if (!insert(text, text->count, strndup(bytes, (size_t)(stop - bytes))))
            return false;
        bytes = stop + 1;
    }
    return true;
}

static int take_line(void *context, const struct conf_line *line, struct error_text *err)
{
    struct users_text *text = context;
    struct users_row *row = &text->rows[line->number - 1];
    struct users_line taken;
    int result = users_file_take(&text->reader, line, &taken, err);

    if (result != HF_OK)
        return result;
    row->value = strdup(line->value);
    if (!row->value)
        return out_of_memory(err);
    row->kind = taken.kind;
    row->user = (int)text->reader.count - 1;
    return HF_OK;
}

int users_text_read(const char *path, const char *bytes, size_t size, struct users_text **ret_text,
                    struct error_text *err)
{
    struct users_text *text = calloc(1, sizeof *text);
    char *copy = malloc(size + 1);
    int result;

    if (copy && size > 0)
        memcpy(copy, bytes, size);
    if (!text || !copy || !split(text, bytes, size))
        result = out_of_memory(err);
    else
        result = conf_parse(copy, size, path, HF_EINVAL, take_line, text, err);
    free(copy);
    if (result != HF_OK) {
        users_text_free(text);
        return result;
    }
    text->path = path;
    *ret_text = text;
    return HF_OK;
}

static void free_row(struct users_row *row)
{
    free(row->text);
    free(row->value);
}

void users_text_free(struct users_text *text)
{
    if (!text)
        return;
    for (size_t i = 0; i < text->count; i++)
        free_row(&text->rows[i]);
    free(text->rows);
    free(text);
}

char *users_text_bytes(const struct users_text *text, size_t *ret_size)
{
    size_t size = 0;
    char *bytes, *at;

    for (size_t i = 0; i < text->count; i++)
        size += strlen(text->rows[i].text) + 1;
    bytes = at = malloc(size + 1);
    if (!bytes)
        return NULL;
    for (size_t i = 0; i < text->count; i++) {
        size_t length = strlen(text->rows[i].text);

        memcpy(at, text->rows[i].text, length);
        at[length] = '\n';
        at += length + 1;
    }
    *at = '\0';
    *ret_size = size;
    return bytes;
}

/* ---- looking -------------------------------------------------------------------------------------- */

int users_text_find(const struct users_text *text, const char *name)
{
    for (size_t i = 0; i < text->reader.count; i++)
        if (strcmp(text->reader.names[i], name) == 0)
            return (int)i;
    return USERS_NOBODY;
}

size_t users_text_next(const struct users_text *text, int user, enum users_kind kind, size_t at)
{
    while (at < text->count &&
           !(text->rows[at].value && text->rows[at].user == user && text->rows[at].kind == kind))
        at++;
    return at;
}

unsigned users_text_count(const struct users_text *text, int user, enum users_kind kind)
{
    unsigned count = 0;
    size_t at = 0;

    while ((at = users_text_next(text, user, kind, at)) < text->count)
        at++, count++;
    return count;
}

/* Behind his last setting of this kind; else of any. */
static size_t behind(const struct users_text *text, int user, enum users_kind kind)
{
    size_t of_kind = 0, of_any = 0;

    for (size_t i = 0; i < text->count; i++)
        if (text->rows[i].value && text->rows[i].user == user) {
            of_any = i + 1;
            if (text->rows[i].kind == kind)
                of_kind = i + 1;
        }
    return of_kind ? of_kind : of_any;
}

/* ---- changing ------------------------------------------------------------------------------------- */

__attribute__((format(printf, 1, 2))) static char *print(const char *format, ...)
{
    va_list list;
    char *line;
    int size;

    va_start(list, format);
    size = vasprintf(&line, format, list);
    va_end(list);
    return size < 0 ? NULL : line;
}

static void drop(struct users_text *text, size_t at)
{
    free_row(&text->rows[at]);
    text->count--;
    memmove(&text->rows[at], &text->rows[at + 1], (text->count - at) * sizeof *text->rows);
}

static bool is_blank(const struct users_text *text, size_t at)
{
    const char *line = text->rows[at].text;

    return line[strspn(line, BLANKS)] == '\0';
}

static bool append(struct users_text *text, char *line)
{
    return insert(text, text->count, line);
}

int users_text_add(struct users_text *text, const char *name, const char *hash,
                   const char *const *allows, size_t allow_count,
                   const char *const limits[USERS_LIMITS], struct error_text *err)
{
    bool done = text->count == 0 || is_blank(text, text->count - 1) || append(text, strdup(""));

    done = done && append(text, print("user = %s", name));
    done = done && append(text, print("password = %s", hash));
    for (size_t i = 0; i < allow_count && done; i++)
        done = append(text, print("allow = %s", allows[i]));
    for (unsigned i = 0; i < USERS_LIMITS && done; i++)
        if (limits[i])
            done =
                append(text, print("%s = %s", users_file_word(USERS_CONNECTIONS + i), limits[i]));
    return done ? HF_OK : out_of_memory(err);
}

int users_text_remove(struct users_text *text, int user, struct error_text *err)
{
    size_t at = users_text_next(text, user, USERS_USER, 0), end = at + 1;

    (void)err;
    for (size_t i = at; i < text->count; i++) /* with the comments between his lines */
        if (text->rows[i].value && text->rows[i].user == user)
            end = i + 1;
    for (; end > at; end--)
        drop(text, at);
    /* One blank line between the neighbours, and none at the end. */
    if (at < text->count && is_blank(text, at) && (at == 0 || is_blank(text, at - 1)))
        drop(text, at);
    if (at == text->count && at > 0 && is_blank(text, at - 1))
        drop(text, at - 1);
    return HF_OK;
}

/* Of his passwords, all but the last one, or none but it. */
static void drop_passwords(struct users_text *text, int user, bool keep)
{
    unsigned count = users_text_count(text, user, USERS_PASSWORD);

    for (; count > (keep ? 1u : 0u); count--)
        drop(text, users_text_next(text, user, USERS_PASSWORD, 0));
}

int users_text_set_password(struct users_text *text, int user, const char *hash, bool keep,
                            struct error_text *err)
{
    size_t first = users_text_next(text, user, USERS_PASSWORD, 0);

    if (first == text->count)
        first = users_text_next(text, user, USERS_USER, 0) + 1;
    drop_passwords(text, user, keep);
    if (keep && users_text_count(text, user, USERS_PASSWORD) > 0)
        first = users_text_next(text, user, USERS_PASSWORD, 0) + 1;
    return insert(text, first, print("password = %s", hash)) ? HF_OK : out_of_memory(err);
}

int users_text_drop_old(struct users_text *text, int user, struct error_text *err)
{
    (void)err;
    if (users_text_count(text, user, USERS_PASSWORD) < 2)
        return USERS_SAME;
    drop_passwords(text, user, true);
    return HF_OK;
}

int users_text_allow(struct users_text *text, int user, const char *value, struct error_text *err)
{
    size_t at = 0;

    for (; (at = users_text_next(text, user, USERS_RIGHTS, at)) < text->count; at++)
        if (strcmp(text->rows[at].value, value) == 0)
            return USERS_SAME;
    return insert(text, behind(text, user, USERS_RIGHTS), print("allow = %s", value))
               ? HF_OK
               : out_of_memory(err);
}

/* ---- taking rights away ---------------------------------------------------------------------------- */

static bool has_pattern(const struct users_allow *allow, const struct users_pattern *pattern)
{
    for (size_t i = 0; i < allow->pattern_count; i++)
        if (allow->patterns[i].size == pattern->size &&
            memcmp(allow->patterns[i].bytes, pattern->bytes, pattern->size) == 0)
            return true;
    return false;
}

/* Behind the value of a setting; "": there is none. */
static const char *comment_of(const char *line)
{
    for (const char *at = line; (at = strchr(at, '#')); at++)
        if (at > line && strchr(BLANKS, at[-1]))
            return at;
    return "";
}

/* "allow = acquire look: jobs/a jobs/b", without the patterns of `without`, which may be NULL. */
static char *print_allow(unsigned verbs, const struct users_allow *allow,
                         const struct users_allow *without, const char *comment)
{
    char *line = NULL;
    size_t size;
    FILE *out = open_memstream(&line, &size);
    const char *before = ":";

    if (!out)
        return NULL;
    fputs("allow =", out);
    for (unsigned i = 0; i < USERS_VERBS; i++)
        if (verbs >> i & 1)
            fprintf(out, " %s", users_verb_words[i]);
    for (size_t i = 0; i < allow->pattern_count; i++) {
        const struct users_pattern *pattern = &allow->patterns[i];

        if (without && has_pattern(without, pattern))
            continue;
        fprintf(out, "%s %.*s", before, (int)pattern->size, pattern->bytes);
        before = "";
    }
    if (*comment)
        fprintf(out, "  %s", comment);
    if (fclose(out) != 0) {
        free(line);
        return NULL;
    }
    return line;
}

static size_t count_left(const struct users_allow *allow, const struct users_allow *denied)
{
    size_t left = 0;

    for (size_t i = 0; i < allow->pattern_count; i++)
        left += !has_pattern(denied, &allow->patterns[i]);
    return left;
}

/* One line of his becomes none, one, or two: what the verbs that stay may, and what is left to the others. *ret_next is behind them. */
static int deny_row(struct users_text *text, size_t at, const struct users_allow *denied,
                    size_t *ret_next, struct error_text *err)
{
    struct users_row *row = &text->rows[at];
    struct users_allow allow;
    unsigned hit, stay;
    size_t left;
    char *lines[2] = {NULL, NULL};
    const char *comment = comment_of(row->text);
    int result = users_file_allow(row->value, &allow, err);

    *ret_next = at + 1;
    if (result != HF_OK)
        return result;
    hit = allow.verbs & denied->verbs;
    stay = allow.verbs & ~denied->verbs;
    left = denied->pattern_count ? count_left(&allow, denied) : 0;
    if (!hit || (denied->pattern_count && allow.pattern_count && left == allow.pattern_count))
        return USERS_SAME;
    if (denied->pattern_count && !allow.pattern_count)
        return error_set(err, HF_EINVAL,
                         "%s:%zu: this allows all names, and no pattern can be taken from it: deny "
                         "the verb, then allow it for the names that remain",
                         text->path, at + 1);
    if (stay)
        lines[0] = print_allow(stay, &allow, NULL, comment);
    if (left > 0)
        lines[1] = print_allow(hit, &allow, denied, stay ? "" : comment);
    if ((stay && !lines[0]) || (left > 0 && !lines[1])) {
        free(lines[0]);
        free(lines[1]);
        return out_of_memory(err);
    }
    drop(text, at);
    for (int i = 1; i >= 0; i--)
        if (lines[i] && !insert(text, at, lines[i])) {
            free(i == 1 ? lines[0] : NULL);
            return out_of_memory(err);
        }
    *ret_next = at + (lines[0] != NULL) + (lines[1] != NULL);
    return HF_OK;
}

int users_text_deny(struct users_text *text, int user, const char *value, struct error_text *err)
{
    struct users_allow denied;
    int result = users_file_allow(value, &denied, err);
    bool changed = false;
    size_t at = 0;

    while (result >= HF_OK && (at = users_text_next(text, user, USERS_RIGHTS, at)) < text->count) {
        result = deny_row(text, at, &denied, &at, err);
        changed |= result == HF_OK;
    }
    if (result < HF_OK)
        return result;
    return changed ? HF_OK : USERS_SAME;
}
