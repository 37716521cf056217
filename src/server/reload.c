/* reload.c: SIGHUP. The password of clients and the secret of peers are read again from their files; no other setting is. Whoever is
 * connected stays so. So are the certificate of this server, its key, and what says whose certificates are good. A file that cannot be used changes nothing: what was valid stays valid. */
#include "server/reload.h"
#include "base/hmac.h"
#include "server/audit.h"
#include "server/log.h"
#include "server/login.h"
#include "server/server.h"
#include "server/tls.h"
#include "server/users.h"

#include <stdlib.h>
#include <string.h>

/* systemd has copied it when the service was started: the copy never changes. */
static bool is_credential(const char *path)
{
    const char *directory = secure_getenv("CREDENTIALS_DIRECTORY");
    size_t size = directory ? strlen(directory) : 0;

    return size > 0 && strncmp(path, directory, size) == 0 && path[size] == '/';
}

static void log_changes(const char *path, const struct secret *now, const struct secret *before)
{
    int added = secret_count_new(now, before), removed = secret_count_new(before, now);
    bool same = added == 0 && removed == 0 && digests_match(now->digest, before->digest);
    const char *words =
        !same ? "a file was read again, and has changed"
        : is_credential(path)
            ? "a file was read again, and has not changed: it is the copy that systemd made "
              "when the service was started; restart it to have the file copied again"
            : "a file was read again, and has not changed";

    log_info(words, log_text("file", path), log_number("valid", secret_count(now)),
             log_number("added", added), log_number("removed", removed));
    if (removed == secret_count(before)) /* two that became one line, say */
        log_warning("nothing that was valid before is so any more: whoever does not have the new "
                    "one yet is refused",
                    log_text("file", path));
}

static void log_refused(const char *what, const struct error_text *why)
{
    log_warning("a file could not be read again: what was valid before stays valid",
                log_text("setting", what), log_text("why", why->text));
}

static void reload_password(struct config *config)
{
    struct secret now = {0};
    struct error_text err = {""};

    if (!config->password_file[0])
        return;
    if (secret_read("password-file", config->password_file, &now, &err) != HF_OK) {
        log_refused("password-file", &err);
        return;
    }
    log_changes(config->password_file, &now, &config->password);
    if (now.is_short)
        log_warning("the password of clients is short, and can be guessed: " SECRET_ADVICE,
                    log_text("password_file", config->password_file));
    config->password = now;
    secret_wipe(&now);
}

static void reload_secret(struct server *server, struct config *config)
{
    struct secret now = {0};
    struct error_text err = {""};

    if (!config->secret_file[0])
        return;
    if (config_read_secret(config->secret_file, &now, &err) != HF_OK) {
        log_refused("secret-file", &err);
        return;
    }
    log_changes(config->secret_file, &now, &config->cluster_secret);
    config->cluster_secret = now;
    if (server->has_links)
        node_set_secrets(server->node, now.digest, sizeof now.digest,
                         now.has_other ? now.other : NULL, now.has_other ? sizeof now.other : 0,
                         &err);
    secret_wipe(&now);
}

static void reload_users(struct server *server, struct config *config)
{
    struct users *now;
    struct error_text err = {""};

    if (!config->users_file[0])
        return;
    if (users_read(config->users_file, &now, &err) != HF_OK) {
        log_refused("users-file", &err);
        return;
    }
    log_info(is_credential(config->users_file)
                 ? "the users file was read again: it is the copy that systemd made when the "
                   "service was started; restart it to have the file copied again"
                 : "the users file was read again",
             log_text("file", config->users_file), log_number("users", (int64_t)now->count));
    config->users = now;
    login_users_changed(server, now);
}

/* It may have been renamed, so that what follows goes into a new one. */
static void reopen_audit(const struct config *config)
{
    struct error_text err = {""};

    if (audit_open(config->audit_file, &err) != HF_OK)
        log_warning("the audit file could not be opened again: the old one is used",
                    log_text("why", err.text));
}

void reload(struct server *server, struct config *config)
{
    if (!config->password_file[0] && !config->secret_file[0] && !config->users_file[0] &&
        !config->audit_file[0] && !config->tls_cert[0] && config->peer_tls == CONFIG_PEER_TLS_NONE)
        log_info("SIGHUP: there is nothing to read again, neither password-file nor users-file nor "
                 "secret-file nor tls-cert nor peer-tls is set");
    reload_password(config);
    reload_users(server, config);
    reopen_audit(config);
    tls_reload(server, config);
    reload_secret(server, config);
}
