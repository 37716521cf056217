/* tls_config.h: what the settings say of TLS: the rules between them, and the files, read at the start and again by SIGHUP. The TLS itself is
 * a module (net/tls_server.h), which is loaded only if tls-cert or peer-tls is set. */
#ifndef SERVER_TLS_CONFIG_H
#define SERVER_TLS_CONFIG_H

#include "base/error.h"
#include "net/tls_peer.h"
#include "node/node.h"

#define TLS_KEY_BYTES_MAX 65536u

struct config;

/* The rules, and then the files: config->tls, and config->peer_context. */
int tls_config_check(struct config *config, struct error_text *err);
/* HF_EREFUSED: a file cannot be used; HF_EMODULE: there is no TLS. On failure ret_context is as it was. */
int tls_config_read(const struct config *config, struct tls_context **ret_context,
                    struct error_text *err);
/* The same for connections with other nodes. */
int tls_config_read_peers(const struct config *config, struct tls_context **ret_context,
                          struct error_text *err);
/* Would other nodes take the certificate in it? HF_EREFUSED: no, in words. */
int tls_config_check_own(const struct config *config, const struct tls_context *context,
                         struct error_text *err);
/* The file that their certificate is in, and the setting that names it. */
const char *tls_config_peer_cert(const struct config *config, const char **ret_setting);
/* As src/peers wants it: `context` is borrowed. */
struct peers_tls tls_config_peers(const struct config *config, struct tls_context *context);
/* The module's, once a context has been read. */
const struct tls_server_provider *tls_provider(void);
void tls_config_free(struct tls_context *context); /* NULL is fine */

#endif
