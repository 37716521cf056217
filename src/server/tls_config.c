/* tls_config.c: see tls_config.h. */
#include "server/tls_config.h"
#include "base/hostport.h"
#include "base/modules.h"
#include "server/config.h"
#include "server/initial_members.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct tls_server_provider *loaded;
static const struct tls_peer_provider *loaded_for_peers;

const struct tls_server_provider *tls_provider(void)
{
    return loaded;
}

static int load(struct error_text *err)
{
    static const struct module module = {.name = "tls",
                                         .needed_by = "tls-cert: TLS needs",
                                         .library = "OpenSSL (libssl-dev)",
                                         .symbol = TLS_SERVER_SYMBOL};
    const struct tls_server_provider *found;
    tls_server_module_fn *get;
    int result = loaded ? HF_OK : module_symbol(&module, (void **)&get, err);

    if (result != HF_OK || loaded)
        return result;
    found = get();
    if (!found || found->abi != TLS_SERVER_ABI) {
        module_misfit(&module, err);
        return HF_EMODULE;
    }
    loaded = found;
    return HF_OK;
}

static int load_for_peers(struct error_text *err)
{
    static const struct module module = {.name = "tls",
                                         .needed_by = "peer-tls: TLS needs",
                                         .library = "OpenSSL (libssl-dev)",
                                         .symbol = TLS_PEER_SYMBOL};
    const struct tls_peer_provider *found;
    tls_peer_module_fn *get;
    int result = loaded_for_peers ? HF_OK : module_symbol(&module, (void **)&get, err);

    if (result != HF_OK || loaded_for_peers)
        return result;
    found = get();
    if (!found || found->abi != TLS_PEER_ABI) {
        module_misfit(&module, err);
        return HF_EMODULE;
    }
    loaded_for_peers = found;
    return load(err);
}

/* ---- files ------------------------------------------------------------------------------------------- */

static int read_all(int fd, const char *setting, const char *path, char *bytes, size_t size,
                    size_t *ret_size, struct error_text *err)
{
    size_t have = 0;

    while (have < size) {
        ssize_t n = read(fd, bytes + have, size - have);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_set_errno(err, HF_EREFUSED, errno, "%s %s", setting, path);
        if (n == 0)
            break;
        have += (size_t)n;
    }
    if (have == size)
        return error_set(err, HF_EREFUSED, "%s %s: %zu bytes are too many for a key", setting, path,
                         have);
    *ret_size = have;
    return HF_OK;
}

/* Everybody may read a certificate: whoever took it for the key is not to be told to forbid that. What cannot be read is none. */
static bool is_certificate(const char *path, char *room, size_t room_size)
{
    static const char certificate[] = "-----BEGIN CERTIFICATE", key[] = "PRIVATE KEY-----";
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct error_text ignored;
    size_t size = 0;
    bool is_read = fd >= 0 && read_all(fd, "", path, room, room_size, &size, &ignored) == HF_OK;

    if (fd >= 0)
        close(fd);
    return is_read && memmem(room, size, certificate, sizeof certificate - 1) &&
           !memmem(room, size, key, sizeof key - 1);
}

/* Others must not be able to read it, as a password. bytes: TLS_KEY_BYTES_MAX of them. */
static int read_key(const struct tls_server_files *files, char *bytes, size_t *ret_size,
                    struct error_text *err)
{
    const char *setting = files->settings.key, *path = files->key_file;
    int fd, result;

    if (is_certificate(path, bytes, TLS_KEY_BYTES_MAX))
        return error_set(err, HF_EREFUSED,
                         "%s %s: this is a certificate, and not a key: name the file with the key "
                         "of %s",
                         setting, path, files->settings.cert);
    result = secret_open(setting, path, &fd, err);
    if (result != HF_OK)
        return result;
    result = read_all(fd, setting, path, bytes, TLS_KEY_BYTES_MAX, ret_size, err);
    close(fd);
    return result;
}

/* Of a directory OpenSSL reads nothing, and says that there is no certificate in it; whoever opens a pipe waits for its writer, and the loop
 * with him. What is not there OpenSSL says. The key is opened without waiting. */
static int check_file(const char *setting, const char *path, bool is_key, struct error_text *err)
{
    struct stat status;

    if (!path[0] || stat(path, &status) != 0 || S_ISREG(status.st_mode))
        return HF_OK;
    if (S_ISDIR(status.st_mode))
        return error_set(err, HF_EREFUSED, "%s %s is a directory: name a file, in PEM", setting,
                         path);
    return is_key ? HF_OK
                  : error_set(err, HF_EREFUSED,
                              "%s %s is no regular file (but a pipe, a socket or a device): name "
                              "one, in PEM",
                              setting, path);
}

static int check_files(const struct tls_server_files *files, struct error_text *err)
{
    const struct {
        const char *setting, *path;
        bool is_key;
    } all[] = {{files->settings.cert, files->cert_file, false},
               {files->settings.key, files->key_file, true},
               {files->settings.ca, files->ca_file, false},
               {files->settings.crl, files->crl_file, false}};
    int result = HF_OK;

    for (size_t i = 0; i < sizeof all / sizeof *all && result == HF_OK; i++)
        result = check_file(all[i].setting, all[i].path, all[i].is_key, err);
    return result;
}

static enum tls_clients clients_of(const struct config *config)
{
    return config->tls_clients == CONFIG_TLS_MUST  ? TLS_CLIENTS_MUST
           : config->tls_clients == CONFIG_TLS_MAY ? TLS_CLIENTS_MAY
                                                   : TLS_CLIENTS_ANYBODY;
}

static int make(struct tls_server_files files, struct tls_context **ret_context,
                struct error_text *err)
{
    int result = check_files(&files, err);
    char *key;

    if (result != HF_OK)
        return result;
    key = malloc(TLS_KEY_BYTES_MAX);
    if (!key)
        return error_set(err, HF_ENOMEM, "out of memory");
    result = read_key(&files, key, &files.key_size, err);
    files.key = key;
    if (result == HF_OK)
        result = loaded->context_new(&files, ret_context, err);
    explicit_bzero(key, TLS_KEY_BYTES_MAX);
    free(key);
    return result;
}

int tls_config_read(const struct config *config, struct tls_context **ret_context,
                    struct error_text *err)
{
    struct tls_server_files files = {.cert_file = config->tls_cert,
                                     .key_file = config->tls_key,
                                     .ca_file = config->tls_ca,
                                     .crl_file = config->tls_crl,
                                     .settings = {"tls-cert", "tls-key", "tls-ca", "tls-crl"},
                                     .clients = clients_of(config)};
    int result = load(err);

    return result == HF_OK ? make(files, ret_context, err) : result;
}

const char *tls_config_peer_cert(const struct config *config, const char **ret_setting)
{
    bool own = config->peer_tls_cert[0];

    *ret_setting = own ? "peer-tls-cert" : "tls-cert";
    return own ? config->peer_tls_cert : config->tls_cert;
}

/* A list is of the authorities beside which it is named. */
int tls_config_read_peers(const struct config *config, struct tls_context **ret_context,
                          struct error_text *err)
{
    bool own_ca = config->peer_tls_ca[0], own_crl = own_ca || config->peer_tls_crl[0];
    struct tls_server_files files = {.ca_file = own_ca ? config->peer_tls_ca : config->tls_ca,
                                     .crl_file = own_crl ? config->peer_tls_crl : config->tls_crl,
                                     .clients = TLS_CLIENTS_ARE_PEERS};
    int result = load_for_peers(err);

    files.cert_file = tls_config_peer_cert(config, &files.settings.cert);
    files.key_file = config->peer_tls_cert[0] ? config->peer_tls_key : config->tls_key;
    files.settings.key = config->peer_tls_cert[0] ? "peer-tls-key" : "tls-key";
    files.settings.ca = own_ca ? "peer-tls-ca" : "tls-ca";
    files.settings.crl = own_crl ? "peer-tls-crl" : "tls-crl";
    return result == HF_OK ? make(files, ret_context, err) : result;
}

int tls_config_check_own(const struct config *config, const struct tls_context *context,
                         struct error_text *err)
{
    const struct config_member *own = initial_members_find(&config->cluster, config->id);
    const char *setting, *file = tls_config_peer_cert(config, &setting);
    struct error_text why = {""};
    struct hostport at;
    int result;

    if (!own || hostport_parse(own->address, strlen(own->address), &at) != HOSTPORT_OK)
        return HF_OK;
    result = loaded_for_peers->check_own(context, at.host, &why);
    return result == HF_OK ? HF_OK : error_set(err, result, "%s %s: %s", setting, file, why.text);
}

struct peers_tls tls_config_peers(const struct config *config, struct tls_context *context)
{
    return (struct peers_tls){.mode = config->peer_tls == CONFIG_PEER_TLS_MUST  ? PEERS_TLS_MUST
                                      : config->peer_tls == CONFIG_PEER_TLS_MAY ? PEERS_TLS_MAY
                                                                                : PEERS_IN_CLEAR,
                              .provider = loaded_for_peers,
                              .context = context};
}

void tls_config_free(struct tls_context *context)
{
    if (context)
        loaded->context_free(context);
}

/* ---- rules ------------------------------------------------------------------------------------------- */

static const struct endpoint *first_with_tls(const struct config *config)
{
    for (int i = 0; i < config->listen.count; i++)
        if (config->listen.at[i].tls)
            return &config->listen.at[i];
    return NULL;
}

static bool has_peer_tls(const struct config *config)
{
    return config->peer_tls != CONFIG_PEER_TLS_NONE;
}

static int check_peer_rules(const struct config *config, struct error_text *err)
{
    bool names_file = config->peer_tls_cert[0] || config->peer_tls_key[0] ||
                      config->peer_tls_ca[0] || config->peer_tls_crl[0];

    if (!has_peer_tls(config) && names_file)
        return error_set(err, HF_EINVAL,
                         "peer-tls-cert, -key, -ca and -crl are for TLS between nodes, which is "
                         "off: set peer-tls to yes, or to optional while it is turned on");
    if (!has_peer_tls(config))
        return HF_OK;
    if (config->cluster.count == 0)
        return error_set(err, HF_EINVAL,
                         "peer-tls is for the members of a cluster, and this node is alone: set "
                         "cluster");
    if (!config->peer_tls_cert[0] != !config->peer_tls_key[0])
        return error_set(err, HF_EINVAL,
                         "peer-tls-cert and peer-tls-key come together: a certificate, and the key "
                         "that belongs to it");
    if (!config->peer_tls_cert[0] && !config->tls_cert[0])
        return error_set(err, HF_EINVAL,
                         "peer-tls needs a certificate: set peer-tls-cert and peer-tls-key, or "
                         "tls-cert and tls-key");
    if (!config->peer_tls_ca[0] && !config->tls_ca[0])
        return error_set(err, HF_EINVAL,
                         "peer-tls needs the authorities of the nodes' certificates: set "
                         "peer-tls-ca, or tls-ca");
    return HF_OK;
}

static int check_rules(const struct config *config, struct error_text *err)
{
    const struct endpoint *with_tls = first_with_tls(config);
    bool asks = config->tls_clients != CONFIG_TLS_NONE;
    bool peers_use_cert = has_peer_tls(config) && !config->peer_tls_cert[0];
    bool peers_use_ca = has_peer_tls(config) && !config->peer_tls_ca[0];

    if (!config->tls_cert[0] != !config->tls_key[0])
        return error_set(err, HF_EINVAL,
                         "tls-cert and tls-key come together: a certificate, and "
                         "the key that belongs to it");
    if (with_tls && !config->tls_cert[0])
        return error_set(err, HF_EINVAL,
                         "listening on %s needs a certificate: set tls-cert and tls-key",
                         with_tls->shown);
    if (config->tls_cert[0] && !with_tls && !peers_use_cert)
        return error_set(err, HF_EINVAL,
                         "tls-cert is set, and nothing is listened at with it: write tls: before "
                         "an address of listen, as in tls:%s",
                         config->listen.at[0].path[0] ? "0.0.0.0:7420"
                                                      : config->listen.at[0].shown);
    if (asks && !config->tls_ca[0])
        return error_set(err, HF_EINVAL,
                         "tls-clients asks clients for a certificate: set tls-ca "
                         "to the authorities that it may be of");
    if (!asks && config->tls_ca[0] && !peers_use_ca)
        return error_set(err, HF_EINVAL,
                         "tls-ca is for clients' certificates, which nobody asks for: set "
                         "tls-clients to yes, or to optional");
    if (config->tls_crl[0] && !config->tls_ca[0])
        return error_set(err, HF_EINVAL,
                         "tls-crl needs tls-ca: it says which of the certificates "
                         "of those authorities were revoked");
    return HF_OK;
}

int tls_config_check(struct config *config, struct error_text *err)
{
    int result = check_rules(config, err);

    if (result == HF_OK)
        result = check_peer_rules(config, err);
    if (result == HF_OK && first_with_tls(config))
        result = tls_config_read(config, &config->tls, err);
    if (result == HF_OK && has_peer_tls(config))
        result = tls_config_read_peers(config, &config->peer_context, err);
    return result;
}
