/* config_rules.c: what no setting says alone: which of them go together, what is in the files that they name, and where data may be. */
#include "base/filesystem.h"
#include "server/config.h"
#include "server/initial_members.h"
#include "server/tls_config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int config_check_data(const struct config *config, struct error_text *err)
{
    enum filesystem_kind kind;
    const char *name;
    int result = filesystem_look(config->data, &kind, &name, err);

    if (result == HF_OK && kind == FILESYSTEM_IN_MEMORY && config->allow != CONFIG_ALLOWS_TMPFS)
        return error_set(err, HF_EREFUSED,
                         "%s is on %s, which forgets the locks and the fencing tokens at a reboot; "
                         "use a directory on disk, or add --allow tmpfs to accept that",
                         config->data, name);
    return result;
}

/* The default place is made with all above it. */
int config_check_place(const struct config *config, struct error_text *err)
{
    char parent[sizeof config->data];
    size_t length = strlen(config->data);
    int result = config_check_data(config, err);

    if (result != HF_OK || config->data_is_default)
        return result;
    while (length > 1 && config->data[length - 1] == '/')
        length--;
    while (length > 0 && config->data[length - 1] != '/')
        length--;
    snprintf(parent, sizeof parent, "%.*s", (int)length, config->data);
    if (access(length > 0 ? parent : ".", F_OK) < 0 && errno == ENOENT)
        return error_set(err, HF_EREFUSED,
                         "the directory that the data directory %s would be in is not there: make "
                         "it with 'mkdir -p'",
                         config->data);
    return HF_OK;
}

int config_read_secret(const char *path, struct secret *ret_secret, struct error_text *err)
{
    struct secret secret = {0};
    int result = secret_read("secret-file", path, &secret, err);

    if (result == HF_OK && secret.is_short)
        result = error_set(err, HF_EREFUSED,
                           "secret-file %s: whoever sees two nodes meet can guess a secret of less "
                           "than %d characters: " SECRET_ADVICE,
                           path, SECRET_MIN);
    if (result == HF_OK)
        *ret_secret = secret;
    secret_wipe(&secret);
    return result;
}

/* Where a certificate is asked for, whoever has none gets no further than that. */
static bool is_protected(const struct config *config, const struct endpoint *endpoint)
{
    return endpoint->loopback || config->password.set || config->users ||
           (endpoint->tls && config->tls_clients == CONFIG_TLS_MUST);
}

static int check_open_addresses(const struct config *config, struct error_text *err)
{
    for (int i = 0; i < config->listen.count; i++)
        if (!is_protected(config, &config->listen.at[i]))
            return error_set(
                err, CONFIG_WRONG,
                "listening on %s lets other machines take locks without a password: "
                "set password-file or users-file, or listen on 127.0.0.1 or a unix socket only",
                config->listen.at[i].shown);
    if (config->admin.shown[0] && !config->admin.loopback && !config->password.set &&
        !config->users)
        return error_set(err, CONFIG_WRONG,
                         "admin at %s lets other machines see and break locks without a password: "
                         "set users-file or password-file, or take 127.0.0.1",
                         config->admin.shown);
    return CONFIG_DONE;
}

int config_check_rules(struct config *config, struct error_text *err)
{
    if (config->password_file[0] &&
        secret_read("password-file", config->password_file, &config->password, err) != HF_OK)
        return CONFIG_WRONG;
    if (config->users_file[0] && config->password_file[0])
        return error_set(err, CONFIG_WRONG,
                         "password-file and users-file do not go together: who says a password "
                         "without a name is the user 'default' of the users file");
    if (config->users_file[0] && users_read(config->users_file, &config->users, err) != HF_OK)
        return CONFIG_WRONG;
    if (config->secret_file[0] &&
        config_read_secret(config->secret_file, &config->cluster_secret, err) != HF_OK)
        return CONFIG_WRONG;
    if (initial_members_check(config, err) != HF_OK)
        return CONFIG_WRONG;
    if (tls_config_check(config, err) != HF_OK)
        return CONFIG_WRONG;
    return check_open_addresses(config, err);
}
