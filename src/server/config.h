/* config.h: what holdfastd was told to do. Settings come, later ones over earlier ones, from
 *
 *     defaults  <  configuration file  <  environment  <  flags
 *
 * and all of these, --help and --check-config read one table: settings.c. main does this:
 *
 *     status = config_from(argc, argv, &config, &err);
 *     if (status != CONFIG_DONE)
 *         return fprintf(stderr, "holdfastd: %s\n", err.text), status;
 *     if (config_answer(&config, stdout))
 *         return fflush(stdout) == 0 ? CONFIG_DONE : 74; */
#ifndef SERVER_CONFIG_H
#define SERVER_CONFIG_H

#include "base/error.h"
#include "server/endpoint.h"
#include "server/secret.h"
#include "server/users.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define CONFIG_FILE "/etc/holdfast/holdfastd.conf" /* read if it is there */
#define CONFIG_LISTEN_MAX 16                       /* places to listen at */
#define CONFIG_MEMBERS_MAX 9                       /* founding members of a cluster */
#define CONFIG_PATH_MAX 1023
#define CONFIG_SETTINGS_MAX 48

/* Exit statuses, as in sysexits.h; the unit file knows that they are not worth a restart. */
enum { CONFIG_DONE = 0, CONFIG_USAGE = 64, CONFIG_WRONG = 78 };

enum config_allow { CONFIG_ALLOWS_NOTHING = 1, CONFIG_ALLOWS_TMPFS };
enum config_join { CONFIG_FOUNDS = 1, CONFIG_JOINS };
enum config_tls_clients { CONFIG_TLS_NONE = 1, CONFIG_TLS_MAY, CONFIG_TLS_MUST };
enum config_peer_tls { CONFIG_PEER_TLS_NONE = 1, CONFIG_PEER_TLS_MAY, CONFIG_PEER_TLS_MUST };

enum config_ask {
    CONFIG_RUN = 0, /* the server is wanted; anything else is for config_answer */
    CONFIG_HELP,
    CONFIG_VERSION,
    CONFIG_CHECK,
    CONFIG_RESTORE /* for main: nothing is served */
};

struct config_listen {
    int count;
    struct endpoint at[CONFIG_LISTEN_MAX];
};

/* The members that a cluster is founded with, in the order of their ids. */
struct config_cluster {
    int count;
    struct config_member {
        uint64_t id;
        char address[ENDPOINT_TEXT_MAX]; /* for its peers */
    } at[CONFIG_MEMBERS_MAX];
};

struct config {
    enum config_ask ask;
    struct config_listen listen;
    uint32_t unix_socket_mode;
    char password_file[CONFIG_PATH_MAX + 1]; /* "": none */
    struct secret password;                  /* read from there */
    char users_file[CONFIG_PATH_MAX + 1];    /* "": none */
    struct users *users;                     /* read from there; the server's once it runs */
    char audit_file[CONFIG_PATH_MAX + 1];
    struct endpoint admin; /* for operators, by HTTP; shown "": off */
    char tls_cert[CONFIG_PATH_MAX + 1], tls_key[CONFIG_PATH_MAX + 1]; /* "": there is no TLS */
    char tls_ca[CONFIG_PATH_MAX + 1], tls_crl[CONFIG_PATH_MAX + 1];
    int tls_clients;         /* of enum config_tls_clients */
    struct tls_context *tls; /* read from there; the server's once it runs */
    bool data_is_default;    /* then missing parents are made */
    char data[CONFIG_PATH_MAX + 1];
    int allow; /* of enum config_allow: what kind of place `data` may be in */
    char restore_from[CONFIG_PATH_MAX + 1]; /* CONFIG_RESTORE: the backup */
    uint64_t id;
    uint64_t snapshot_bytes;
    struct config_cluster cluster;       /* count 0: a node alone */
    char advertise[ENDPOINT_TEXT_MAX];   /* where clients find this node; "": where it listens */
    char peer_listen[ENDPOINT_TEXT_MAX]; /* "": its address in the cluster */
    char secret_file[CONFIG_PATH_MAX + 1];
    struct secret cluster_secret;
    int peer_tls; /* of enum config_peer_tls */
    char peer_tls_cert[CONFIG_PATH_MAX + 1], peer_tls_key[CONFIG_PATH_MAX + 1]; /* "": as tls_... */
    char peer_tls_ca[CONFIG_PATH_MAX + 1], peer_tls_crl[CONFIG_PATH_MAX + 1];
    struct tls_context *peer_context; /* read from there; the server's once it runs */
    int join;                         /* of enum config_join */
    int64_t election_timeout_ms;
    int log_level;  /* of enum log_level */
    int log_format; /* of enum log_format */
    uint64_t max_clients;
    uint64_t max_query_bytes;
    uint64_t max_output_bytes;
    uint64_t max_pipeline;
    int64_t idle_timeout_ms; /* 0: never */
    int64_t keepalive_ms;
    unsigned char from[CONFIG_SETTINGS_MAX]; /* which source each setting is from, by its row */
};

/* Returns CONFIG_DONE, or another exit status and one line for stderr. After --help and --version,
 * which read nothing else, only `ask` is set. The password's digest is wiped by config_wipe. */
int config_from(int argc, char **argv, struct config *ret_config, struct error_text *err);
/* Is `data` where it outlives a reboot, or is it allowed not to? HF_EREFUSED: no, in words. */
int config_check_data(const struct config *config, struct error_text *err);
/* The same, and that it is there or can be made: HF_EREFUSED, if a start would be refused now. */
int config_check_place(const struct config *config, struct error_text *err);
/* Prints what --help, --version or --check-config asked for. False: the server is wanted. */
bool config_answer(const struct config *config, FILE *out);
/* Did nobody set it? */
bool config_is_default(const struct config *config, const char *name);
void config_wipe(struct config *config);
/* The peers' secret, as it is read at the start and again while the server runs. On failure ret_secret is as it was. */
int config_read_secret(const char *path, struct secret *ret_secret, struct error_text *err);

/* The same with everything handed in that config_from takes from the process. */
struct config_sources {
    int argc;
    char **argv;
    char **environment;
    const char *file; /* read if it is there and no other is named */
    bool root;        /* whose default data directory it is */
};
int config_read(const struct config_sources *sources, struct config *ret_config,
                struct error_text *err);
/* Between settings; reads the files that they name. CONFIG_DONE, or CONFIG_WRONG in words. */
int config_check_rules(struct config *config, struct error_text *err);

#endif
