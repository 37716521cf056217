/* user_list.c: holdfast user list and check. */
#include "cli/json.h"
#include "cli/output.h"
#include "cli/user.h"
#include "cli/user_password.h"
#include "cli/users_store.h"

#include <stdio.h>

/* NULL: it has said why, and *ret_status is the exit status. */
static struct users_text *read_file(const struct user_request *request, int *ret_status)
{
    struct users_store store;
    struct users_text *text = NULL;
    struct error_text err = {""};
    int result = users_store_open(&store, request->path, false, false, &err);

    if (result == HF_OK) {
        result = users_text_read(request->path, store.bytes, store.size, &text, &err);
        users_store_close(&store);
    }
    *ret_status = result == HF_OK ? EXIT_DONE : user_say(result, &err);
    return text;
}

/* NULL: there is none. */
static const char *value_of(const struct users_text *text, int user, enum users_kind kind,
                            size_t *at)
{
    *at = users_text_next(text, user, kind, *at);
    return *at < text->count ? text->rows[(*at)++].value : NULL;
}

/* ---- list ------------------------------------------------------------------------------------------ */

static const char *limit_of(const struct users_text *text, int user, unsigned limit)
{
    size_t at = 0;

    return value_of(text, user, USERS_CONNECTIONS + limit, &at);
}

static void list_json(const struct users_text *text, int user)
{
    size_t at = 0;
    const char *value;
    uint32_t number = 0;
    struct json json;

    json_begin(&json);
    json_string(&json, "user", text->reader.names[user]);
    json_u64(&json, "passwords", users_text_count(text, user, USERS_PASSWORD));
    for (unsigned i = 0; i < USERS_LIMITS; i++) {
        const char *word = users_file_word(USERS_CONNECTIONS + i);

        value = limit_of(text, user, i);
        if (value && users_file_limit(USERS_CONNECTIONS + i, value, &number, NULL) == HF_OK)
            json_u64(&json, word, number);
        else
            json_string(&json, word, NULL);
    }
    json_array(&json, "allow");
    while ((value = value_of(text, user, USERS_RIGHTS, &at)))
        json_string(&json, NULL, value);
    json_close(&json, ']');
    json_end(&json);
}

/* Limits on what all nodes share have columns if somebody has one. */
static unsigned limits_shown(const struct users_text *text)
{
    for (int user = 0; user < (int)text->reader.count; user++)
        for (unsigned i = 1; i < USERS_LIMITS; i++)
            if (limit_of(text, user, i))
                return USERS_LIMITS;
    return 1;
}

/* A row for each line of rights. */
static void list_rows(const struct users_text *text, int user, unsigned limits, struct table *table)
{
    char passwords[16];
    size_t rights = 0;
    const char *value;

    snprintf(passwords, sizeof passwords, "%u", users_text_count(text, user, USERS_PASSWORD));
    value = value_of(text, user, USERS_RIGHTS, &rights);
    table_cell(table, text->reader.names[user]);
    table_cell(table, passwords);
    for (unsigned i = 0; i < limits; i++)
        table_cell(table, limit_of(text, user, i) ? limit_of(text, user, i) : "no limit");
    table_cell(table, value ? printable(value) : "nothing");
    while (value && (value = value_of(text, user, USERS_RIGHTS, &rights))) {
        for (unsigned i = 0; i < 2 + limits; i++)
            table_cell(table, "");
        table_cell(table, printable(value));
    }
}

int user_list(struct user_request *request)
{
    static const char *const limit_heads[USERS_LIMITS] = {"CONNECTIONS", "LEASES", "HOLDS",
                                                          "PLACES"};
    struct table table;
    unsigned limits;
    int status;
    struct users_text *text = read_file(request, &status);

    if (!text)
        return status;
    limits = limits_shown(text);
    table_begin(&table, 3 + (int)limits);
    if (!request->json) {
        table_cell(&table, "USER");
        table_cell(&table, "PASSWORDS");
        for (unsigned i = 0; i < limits; i++)
            table_cell(&table, limit_heads[i]);
        table_cell(&table, "MAY");
    }
    for (int user = 0; user < (int)text->reader.count; user++) {
        if (request->json)
            list_json(text, user);
        else
            list_rows(text, user, limits, &table);
    }
    status = table_end(&table);
    users_text_free(text);
    return finish_output(status);
}

/* ---- check ----------------------------------------------------------------------------------------- */

/* 0: there is no such limit. */
static uint32_t number_of(const struct users_text *text, int user, enum users_kind kind)
{
    const char *value = limit_of(text, user, USERS_LIMIT(kind));
    uint32_t number = 0;

    if (value)
        users_file_limit(kind, value, &number, NULL);
    return number;
}

/* What the server takes, and its keeper may not have meant. */
static unsigned say_doubts(const struct users_text *text, int user)
{
    const char *name = text->reader.names[user], *value, *doubt;
    unsigned count = 0;
    size_t at = 0;

    if (users_text_count(text, user, USERS_PASSWORD) == 0 &&
        users_text_count(text, user, USERS_CERTIFICATE) == 0) {
        say("%s has no password and no certificate, and cannot say who it is", name);
        count++;
    }
    if (users_text_count(text, user, USERS_RIGHTS) == 0) {
        say("%s may do nothing: there is no allow line", name);
        count++;
    }
    if (number_of(text, user, USERS_PLACES) > number_of(text, user, USERS_HOLDS) &&
        number_of(text, user, USERS_HOLDS) > 0) {
        say("%s has places = %u, of which holds = %u leaves no more than that: it limits both "
            "together",
            name, number_of(text, user, USERS_PLACES), number_of(text, user, USERS_HOLDS));
        count++;
    }
    while ((value = value_of(text, user, USERS_PASSWORD, &at)))
        if ((doubt = user_password_doubt(value))) {
            say("%s:%zu: the password of %s %s", printable(text->path), at, name, doubt);
            count++;
        }
    return count;
}

int user_check(struct user_request *request)
{
    int status;
    struct users_text *text = read_file(request, &status);
    unsigned doubts = 0;
    struct json json;

    if (!text)
        return status;
    if (text->reader.count == 0)
        say("%s has no users: a server does not start with it, and goes on with what it had at a "
            "reload",
            printable(request->path));
    for (int user = 0; user < (int)text->reader.count; user++)
        doubts += say_doubts(text, user);
    if (request->json) {
        json_begin(&json);
        json_string(&json, "file", request->path);
        json_u64(&json, "users", text->reader.count);
        json_u64(&json, "doubts", doubts);
        json_end(&json);
    } else {
        printf("%s is well-formed: %zu user%s\n", printable(request->path), text->reader.count,
               text->reader.count == 1 ? "" : "s");
    }
    users_text_free(text);
    return finish_output(EXIT_DONE);
}
