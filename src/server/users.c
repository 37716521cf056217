/* users.c: see users.h. */
#include "server/users.h"
#include "base/conf.h"
#include "base/hmac.h"
#include "base/random.h"
#include "server/secret.h"

#include <crypt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

const struct user user_of_none = {.name = "nobody"};

/* ---- the file ------------------------------------------------------------------------------------- */

struct reading {
    struct users_reader reader;
    struct users_line line;
    struct users *users;
};

static struct account *begin_account(struct users *users, const char *name)
{
    struct account *grown = realloc(users->accounts, (users->count + 1) * sizeof *grown);
    struct account *account;

    if (!grown)
        return NULL;
    users->accounts = grown;
    account = &grown[users->count++];
    memset(account, 0, sizeof *account);
    memcpy(account->user.name, name, strnlen(name, USER_NAME_MAX));
    return account;
}

static int add_grant(struct account *account, unsigned rights, const char *pattern, size_t size,
                     struct error_text *err)
{
    size_t count = account->user.grant_count;
    struct user_grant *grown = realloc(account->grants, (count + 1) * sizeof *grown);
    char *copy = strndup(pattern, size);

    if (grown)
        account->grants = grown;
    if (!grown || !copy) {
        free(copy);
        return error_set(err, HF_ENOMEM, "out of memory");
    }
    account->patterns[count] = copy;
    grown[count] = (struct user_grant){.rights = rights, .pattern = {copy, size}};
    account->user.grant_count++;
    return HF_OK;
}

static int add_grants(struct account *account, const struct users_allow *allow,
                      struct error_text *err)
{
    int result = HF_OK;

    if (allow->pattern_count == 0)
        return add_grant(account, allow->verbs, "*", 1, err);
    for (size_t i = 0; i < allow->pattern_count && result == HF_OK; i++)
        result = add_grant(account, allow->verbs, allow->patterns[i].bytes, allow->patterns[i].size,
                           err);
    return result;
}

/* Twice, and nobody could tell whose it is. */
static int add_certificate(struct users *users, struct account *account,
                           const struct conf_line *line, struct error_text *err)
{
    char *copy;

    if (users_find_certificate(users, true, line->value))
        return error_set(err, HF_EREFUSED, "%s:%u: the certificate %s is there twice", line->path,
                         line->number, line->value);
    copy = strdup(line->value);
    if (!copy)
        return error_set(err, HF_ENOMEM, "out of memory");
    account->certificates[account->certificate_count++] = copy;
    return HF_OK;
}

static int take_line(void *context, const struct conf_line *line, struct error_text *err)
{
    struct reading *reading = context;
    struct users *users = reading->users;
    struct users_line *taken = &reading->line;
    int result = users_file_take(&reading->reader, line, taken, err);
    struct account *account;

    if (result != HF_OK)
        return HF_EREFUSED;
    account = users->count ? &users->accounts[users->count - 1] : NULL;
    INVARIANT(account || taken->kind == USERS_USER); /* as users_file_take has seen to */
    switch (taken->kind) {
    case USERS_USER:
        return begin_account(users, taken->value) ? HF_OK
                                                  : error_set(err, HF_ENOMEM, "out of memory");
    case USERS_PASSWORD:
        snprintf(account->passwords[account->password_count], sizeof account->passwords[0], "%s",
                 taken->value);
        account->password_count++;
        return HF_OK;
    case USERS_RIGHTS:
        return add_grants(account, &taken->allow, err);
    case USERS_CONNECTIONS:
        account->connections_max = taken->number;
        return HF_OK;
    case USERS_LEASES:
        account->user.quota.leases = taken->number;
        return HF_OK;
    case USERS_HOLDS:
        account->user.quota.holds = taken->number;
        return HF_OK;
    case USERS_PLACES:
        account->user.quota.places = taken->number;
        return HF_OK;
    case USERS_CERTIFICATE:
        return add_certificate(users, account, line, err);
    }
    return HF_OK;
}

int users_read(const char *path, struct users **ret_users, struct error_text *err)
{
    struct reading *reading = calloc(1, sizeof *reading);
    struct users *users = calloc(1, sizeof *users);
    int fd, result;

    if (!reading || !users) {
        free(reading);
        free(users);
        return error_set(err, HF_ENOMEM, "out of memory");
    }
    reading->users = users;
    result = secret_open("users-file", path, &fd, err);
    if (result == HF_OK) {
        result = conf_read_max(fd, path, USERS_FILE_MAX, HF_EREFUSED, take_line, reading, err);
        close(fd);
    }
    free(reading);
    /* A disk that was full, or a copy that has just begun: nobody means that nobody may connect. */
    if (result == HF_OK && users->count == 0)
        result = error_set(err, HF_EREFUSED, "users-file %s: there is no user in it", path);
    if (result != HF_OK) {
        users_free(users);
        return result;
    }
    /* Accounts have stopped moving. */
    for (size_t i = 0; i < users->count; i++)
        users->accounts[i].user.grants = users->accounts[i].grants;
    *ret_users = users;
    return HF_OK;
}

void users_free(struct users *users)
{
    if (!users)
        return;
    for (size_t i = 0; i < users->count; i++) {
        struct account *account = &users->accounts[i];

        for (size_t k = 0; k < account->user.grant_count; k++)
            free(account->patterns[k]);
        for (unsigned k = 0; k < account->certificate_count; k++)
            free(account->certificates[k]);
        free(account->grants);
        explicit_bzero(account, sizeof *account);
    }
    free(users->accounts);
    free(users);
}

struct account *users_find(struct users *users, const char *name, size_t size)
{
    for (size_t i = 0; i < users->count; i++) {
        struct account *account = &users->accounts[i];

        if (strlen(account->user.name) == size && memcmp(account->user.name, name, size) == 0)
            return account;
    }
    return NULL;
}

struct account *users_find_certificate(struct users *users, bool any_case, const char *name)
{
    for (size_t i = 0; i < users->count; i++) {
        struct account *account = &users->accounts[i];

        for (unsigned k = 0; k < account->certificate_count; k++)
            if ((any_case ? strcasecmp : strcmp)(account->certificates[k], name) == 0)
                return account;
    }
    return NULL;
}

/* ---- passwords ------------------------------------------------------------------------------------ */

static void digest_of(const char *password, size_t size, unsigned char ret_digest[SHA256_SIZE])
{
    static unsigned char key[SHA256_SIZE];
    static bool is_drawn;

    if (!is_drawn)
        random_fill(key, sizeof key);
    is_drawn = true;
    hmac_sha256(key, sizeof key, password, size, ret_digest);
}

bool account_knows(const struct account *account, const char *password, size_t size)
{
    unsigned char digest[SHA256_SIZE];
    bool known = false;

    digest_of(password, size, digest);
    for (unsigned i = 0; i < account->password_count; i++)
        known |= account->is_known[i] & digests_match(digest, account->known[i]);
    explicit_bzero(digest, sizeof digest);
    return known;
}

void account_learn(struct account *account, const char *stored, const char *password, size_t size)
{
    for (unsigned i = 0; i < account->password_count; i++)
        if (strcmp(account->passwords[i], stored) == 0) {
            digest_of(password, size, account->known[i]);
            account->is_known[i] = true;
        }
}

static void keep_known(struct account *account, const struct account *before)
{
    for (unsigned i = 0; i < account->password_count; i++)
        for (unsigned k = 0; k < before->password_count; k++)
            if (before->is_known[k] && strcmp(account->passwords[i], before->passwords[k]) == 0) {
                memcpy(account->known[i], before->known[k], SHA256_SIZE);
                account->is_known[i] = true;
            }
}

void users_keep_known(struct users *users, struct users *before)
{
    for (size_t i = 0; users && before && i < users->count; i++) {
        struct account *account = &users->accounts[i];
        const struct account *same =
            users_find(before, account->user.name, strlen(account->user.name));

        if (same)
            keep_known(account, same);
    }
}

bool password_is_stored(const char *stored, const char *password)
{
    struct crypt_data *data = calloc(1, sizeof *data);
    /* Not crypt_r: the sanitizers have one of their own in front of it, which ends in nothing. */
    const char *made = data ? crypt_rn(password, stored, data, sizeof *data) : NULL;
    unsigned char a[SHA256_SIZE], b[SHA256_SIZE];
    bool same = false;

    if (made) {
        sha256(made, strlen(made), a);
        sha256(stored, strlen(stored), b);
        same = digests_match(a, b);
    }
    if (data)
        explicit_bzero(data, sizeof *data);
    free(data);
    return same;
}
