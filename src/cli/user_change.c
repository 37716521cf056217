/* user_change.c: holdfast user add, password, allow, deny and remove. */
#include "cli/json.h"
#include "cli/output.h"
#include "cli/user.h"
#include "cli/user_password.h"
#include "cli/users_store.h"

#include <stdlib.h>
#include <string.h>

/* What is done to the text. user: USERS_NOBODY for one who is to be added. */
typedef int edit_fn(struct users_text *text, int user, const struct user_request *request,
                    struct error_text *err);

int user_say(int result, const struct error_text *err)
{
    say("%s", err->text);
    return result == HF_EINVAL ? EXIT_NOT : status_of(result);
}

static void say_reload(FILE *out, const struct user_request *request)
{
    fprintf(out, "holdfastd reads %s again at SIGHUP: systemctl reload holdfastd, or kill -HUP\n",
            printable(request->path));
}

/* ---- the file -------------------------------------------------------------------------------------- */

/* Is he there, or not, as has to be? */
static int look(const struct users_text *text, const struct user_request *request, int *ret_user,
                struct error_text *err)
{
    *ret_user = users_text_find(text, request->name);
    if (request->adds && *ret_user != USERS_NOBODY)
        return error_set(
            err, HF_EINVAL,
            "there is a user %s in %s already: change it with 'holdfast user password' "
            "or 'user allow'",
            request->name, text->path);
    if (!request->adds && *ret_user == USERS_NOBODY)
        return error_set(err, HF_EINVAL, "there is no user %s in %s", request->name, text->path);
    return HF_OK;
}

/* Before a password is asked for: a mistake is told first. */
static int look_first(const struct user_request *request, struct error_text *err)
{
    struct users_store store;
    struct users_text *text = NULL;
    int user, result = users_store_open(&store, request->path, false, request->adds, err);

    if (result != HF_OK)
        return result;
    result = users_text_read(request->path, store.bytes, store.size, &text, err);
    if (result == HF_OK)
        result = look(text, request, &user, err);
    users_text_free(text);
    users_store_close(&store);
    return result;
}

/* Read as the server will read it. */
static int check_and_write(struct users_store *store, const struct users_text *text,
                           struct error_text *err)
{
    struct users_text *again = NULL;
    size_t size = 0;
    char *bytes = users_text_bytes(text, &size);
    int result = bytes ? HF_OK : error_set(err, HF_ENOMEM, "out of memory");

    if (bytes && size > USERS_FILE_MAX)
        result = error_set(err, HF_EINVAL, "%s would have more than %u bytes", text->path,
                           USERS_FILE_MAX);
    if (result == HF_OK)
        result = users_text_read(text->path, bytes, size, &again, err);
    if (result == HF_OK)
        result = users_store_write(store, bytes, size, err);
    users_text_free(again);
    free(bytes);
    return result;
}

static int change(const struct user_request *request, edit_fn *edit, struct error_text *err)
{
    struct users_store store;
    struct users_text *text = NULL;
    int user = USERS_NOBODY, result;

    result = users_store_open(&store, request->path, true, request->adds, err);
    if (result != HF_OK)
        return result;
    result = users_text_read(request->path, store.bytes, store.size, &text, err);
    if (result == HF_OK)
        result = look(text, request, &user, err);
    if (result == HF_OK)
        result = edit(text, user, request, err);
    if (result == HF_OK)
        result = check_and_write(&store, text, err);
    users_text_free(text);
    users_store_close(&store);
    return result;
}

/* ---- what is said ------------------------------------------------------------------------------------ */

/* password: one that was made, which is told now or never; else NULL. */
static void tell_json(const struct user_request *request, bool changed, const char *password)
{
    struct json json;

    json_begin(&json);
    json_string(&json, "user", request->name);
    json_string(&json, "file", request->path);
    json_bool(&json, "changed", changed);
    if (password)
        json_string(&json, "password", password);
    json_end(&json);
}

/* A password that was made is all that goes to standard output, so that a script can take it. */
static int tell(const struct user_request *request, const char *words, const char *password)
{
    FILE *out = password ? stderr : stdout;

    if (request->json) {
        tell_json(request, true, password);
        return finish_output(EXIT_DONE);
    }
    if (password)
        printf("%s\n", password);
    fflush(stdout);
    fprintf(out, "%s%s\n", request->name, words);
    say_reload(out, request);
    return finish_output(EXIT_DONE);
}

static int finish(const struct user_request *request, int result, const struct error_text *err,
                  const char *words, const char *same)
{
    if (result == HF_OK)
        return tell(request, words, NULL);
    if (result != USERS_SAME)
        return user_say(result, err);
    if (request->json)
        tell_json(request, false, NULL);
    else
        say("%s%s", request->name, same);
    return finish_output(EXIT_NOT);
}

/* ---- passwords --------------------------------------------------------------------------------------- */

static int get_password(struct user_request *request, char password[PASSWORD_MAX + 1],
                        struct error_text *err)
{
    int result = HF_OK;

    if (request->generate)
        user_password_make(password);
    else if (request->password_file)
        result = user_password_file(request->password_file, password, err);
    else
        result = user_password_ask(request->name, password, err);
    if (result == HF_OK)
        result = user_password_hash(password, request->hash, err);
    if (result == HF_OK && strlen(password) < PASSWORD_SHORT)
        say("a password of less than %d characters can be guessed: --generate makes a good one",
            PASSWORD_SHORT);
    return result;
}

static int with_password(struct user_request *request, edit_fn *edit, const char *words)
{
    char password[PASSWORD_MAX + 1] = "";
    struct error_text err = {""};
    int status, result = look_first(request, &err);

    if (result == HF_OK)
        result = get_password(request, password, &err);
    if (result == HF_OK)
        result = change(request, edit, &err);
    status = result == HF_OK ? tell(request, words, request->generate ? password : NULL)
                             : user_say(result, &err);
    explicit_bzero(password, sizeof password);
    return status;
}

/* ---- the actions ------------------------------------------------------------------------------------- */

static int edit_add(struct users_text *text, int user, const struct user_request *request,
                    struct error_text *err)
{
    (void)user;
    return users_text_add(text, request->name, request->hash, request->allows, request->allow_count,
                          request->limits, err);
}

static int edit_password(struct users_text *text, int user, const struct user_request *request,
                         struct error_text *err)
{
    if (request->drop_old)
        return users_text_drop_old(text, user, err);
    return users_text_set_password(text, user, request->hash, request->keep_old, err);
}

static int edit_allow(struct users_text *text, int user, const struct user_request *request,
                      struct error_text *err)
{
    return users_text_allow(text, user, request->rights, err);
}

static int edit_deny(struct users_text *text, int user, const struct user_request *request,
                     struct error_text *err)
{
    return users_text_deny(text, user, request->rights, err);
}

static int edit_remove(struct users_text *text, int user, const struct user_request *request,
                       struct error_text *err)
{
    (void)request;
    return users_text_remove(text, user, err);
}

int user_add(struct user_request *request)
{
    return with_password(
        request, edit_add,
        request->allow_count > 0
            ? " is added"
            : " is added, and may do nothing yet: 'holdfast user allow' says what");
}

int user_password(struct user_request *request)
{
    struct error_text err = {""};

    if (!request->drop_old)
        return with_password(request, edit_password,
                             request->keep_old ? " has a new password, and the last one is valid "
                                                 "until 'holdfast user password --drop-old'"
                                               : " has a new password, and no other");
    return finish(request, change(request, edit_password, &err), &err,
                  " has only the newest password left", " has no older password");
}

int user_allow(struct user_request *request)
{
    struct error_text err = {""};

    return finish(request, change(request, edit_allow, &err), &err, " is allowed that",
                  " is allowed that already: nothing was changed");
}

int user_deny(struct user_request *request)
{
    struct error_text err = {""};

    return finish(request, change(request, edit_deny, &err), &err,
                  " has that no more: 'holdfast user list' shows what is left",
                  " has no such line: nothing was changed; 'holdfast user list' shows what there "
                  "is, and deny takes away what is written there");
}

int user_remove(struct user_request *request)
{
    struct error_text err = {""};

    return finish(request, change(request, edit_remove, &err), &err, " is removed", "");
}
