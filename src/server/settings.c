/* settings.c: the table of all settings, and how each kind of value is read and shown. */
#include "server/settings.h"
#include "base/suggest.h"
#include "base/text.h"
#include "server/initial_members.h"
#include "server/log.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

static const struct setting_kind list_kind, path_kind, number_kind, size_kind, duration_kind,
    mode_kind, choice_kind, admin_kind;

#define KIB UINT64_C(1024)
#define MIB (KIB * 1024)
#define GIB (MIB * 1024)
#define SECOND_MS UINT64_C(1000)

#define FIELD(name) offsetof(struct config, name)
#define CLIENTS "Clients"
#define TLS "TLS"
#define NODE "This node"
#define CLUSTER "Cluster"
#define PEER_TLS "TLS between nodes"
#define LOG "Log"
#define LIMITS "Limits"

static const char *const allowances[] = {"nothing", "tmpfs", NULL};
static const char *const tls_clients[] = {"no", "optional", "yes", NULL};
static const char *const yes_or_no[] = {"no", "yes", NULL};

/* clang-format off */
const struct setting settings[] = {
    {"listen", &list_kind, FIELD(listen), "127.0.0.1:7420", .group = CLIENTS,
     .help = "host:port, [ipv6]:port, tls:host:port or unix:/path"},
    {"unix-socket-mode", &mode_kind, FIELD(unix_socket_mode), "0600", 0600, 0777, .group = CLIENTS,
     .help = "permissions of unix sockets, in octal"},
    {"password-file", &path_kind, FIELD(password_file), "", .group = CLIENTS,
     .help = "a file whose first line is the password that clients must give",
     .example = "/etc/holdfast/password"},
    {"users-file", &path_kind, FIELD(users_file), "", .group = CLIENTS,
     .help = "instead of one password: who may do what (holdfast user makes it)",
     .example = "/etc/holdfast/users"},
    {"audit-file", &path_kind, FIELD(audit_file), "", .group = CLIENTS,
     .help = "what operators do, and who was let in or refused: a line of JSON each",
     .example = "/var/log/holdfastd/audit.json"},
    {"admin", &admin_kind, FIELD(admin), "", .group = CLIENTS,
     .help = "where operators see it in a browser, and Prometheus reads /metrics",
     .example = "127.0.0.1:7480"},

    {"tls-cert", &path_kind, FIELD(tls_cert), "", .group = TLS,
     .help = "this server's certificate, and what leads to its authority (PEM)",
     .example = "/etc/holdfast/server.pem"},
    {"tls-key", &path_kind, FIELD(tls_key), "", .group = TLS,
     .help = "the key of that certificate (PEM)", .example = "/etc/holdfast/server.key"},
    {"tls-clients", &choice_kind, FIELD(tls_clients), "no", .choices = tls_clients, .group = TLS,
     .help = "must clients show a certificate of tls-ca: no, optional or yes"},
    {"tls-ca", &path_kind, FIELD(tls_ca), "", .group = TLS,
     .help = "the authorities that clients' certificates are of (PEM)",
     .example = "/etc/holdfast/clients-ca.pem"},
    {"tls-crl", &path_kind, FIELD(tls_crl), "", .group = TLS,
     .help = "which of these certificates were revoked (PEM)",
     .example = "/etc/holdfast/clients-crl.pem"},

    {"data", &path_kind, FIELD(data), "/var/lib/holdfastd", .per_user = true, .group = NODE,
     .help = "directory of the log and its snapshots"},
    {"allow", &choice_kind, FIELD(allow), "nothing", .choices = allowances, .group = NODE,
     .help = "tmpfs: the directory may be in memory, lost at a reboot"},
    {"id", &number_kind, FIELD(id), "1", 1, UINT64_C(1) << 32, .group = NODE,
     .help = "number of this node, different from those of its peers"},
    {"snapshot-bytes", &size_kind, FIELD(snapshot_bytes), "256MiB", 64 * KIB, 64 * GIB, .group = NODE,
     .help = "how much log is written before the next snapshot is taken"},

    {"cluster", &initial_members_kind, FIELD(cluster), "", .group = CLUSTER,
     .help = "its members, and the addresses where they reach each other",
     .example = "1=10.0.0.1:7431,2=10.0.0.2:7431,3=10.0.0.3:7431"},
    {"advertise", &address_kind, FIELD(advertise), "", .group = CLUSTER,
     .help = "address given to clients, if not the one it listens on", .example = "10.0.0.1:7420"},
    {"peer-listen", &address_kind, FIELD(peer_listen), "", .group = CLUSTER,
     .help = "where to listen for other members, if not at its address in the cluster",
     .example = "0.0.0.0:7431"},
    {"secret-file", &path_kind, FIELD(secret_file), "", .group = CLUSTER,
     .help = "a file whose first line all members share",
     .example = "/etc/holdfast/secret"},
    {"join", &choice_kind, FIELD(join), "no", .choices = yes_or_no, .lone = true, .group = CLUSTER,
     .help = "wait to be added to a cluster, and not be founded with one"},
    {"election-timeout", &duration_kind, FIELD(election_timeout_ms), "500ms", 100, 50 * SECOND_MS,
     .group = CLUSTER, .help = "a leader silent for this long is replaced"},

    {"peer-tls", &choice_kind, FIELD(peer_tls), "no", .choices = tls_clients, .group = PEER_TLS,
     .help = "TLS between nodes: no, optional (while it is turned on) or yes"},
    {"peer-tls-cert", &path_kind, FIELD(peer_tls_cert), "", .group = PEER_TLS,
     .help = "for that another certificate than tls-cert (PEM)",
     .example = "/etc/holdfast/node.pem"},
    {"peer-tls-key", &path_kind, FIELD(peer_tls_key), "", .group = PEER_TLS,
     .help = "the key of that certificate (PEM)", .example = "/etc/holdfast/node.key"},
    {"peer-tls-ca", &path_kind, FIELD(peer_tls_ca), "", .group = PEER_TLS,
     .help = "other authorities than those of tls-ca: of the nodes' certificates (PEM)",
     .example = "/etc/holdfast/nodes-ca.pem"},
    {"peer-tls-crl", &path_kind, FIELD(peer_tls_crl), "", .group = PEER_TLS,
     .help = "which of the nodes' certificates were revoked (PEM)",
     .example = "/etc/holdfast/nodes-crl.pem"},

    {"log-level", &choice_kind, FIELD(log_level), "info", .choices = log_level_names, .group = LOG,
     .help = "how much is logged: error, warning, info or debug"},
    {"log-format", &choice_kind, FIELD(log_format), "text", .choices = log_format_names, .group = LOG,
     .help = "text, or json: one object per line"},

    {"max-clients", &number_kind, FIELD(max_clients), "20000", 1, 1000000, .group = LIMITS,
     .help = "connections at a time"},
    {"max-query-bytes", &size_kind, FIELD(max_query_bytes), "1MiB", 16 * KIB, GIB, .group = LIMITS,
     .help = "per connection: input that was not yet executed"},
    {"max-output-bytes", &size_kind, FIELD(max_output_bytes), "8MiB", 64 * KIB, GIB, .group = LIMITS,
     .help = "per connection: output that it did not yet read; more closes it"},
    {"max-pipeline", &number_kind, FIELD(max_pipeline), "4096", 1, 1000000, .group = LIMITS,
     .help = "per connection: commands in progress"},
    {"idle-timeout", &duration_kind, FIELD(idle_timeout_ms), "0", 0, HF_DURATION_MAX_MS,
     .group = LIMITS, .help = "close a connection silent for this long; 0: never"},
    {"keepalive", &duration_kind, FIELD(keepalive_ms), "15s", SECOND_MS, 3600 * SECOND_MS,
     .group = LIMITS, .help = "TCP probes a client silent for this long"},
};
/* clang-format on */
const size_t setting_count = sizeof settings / sizeof *settings;

_Static_assert(sizeof settings / sizeof *settings <= CONFIG_SETTINGS_MAX, "CONFIG_SETTINGS_MAX");

/* ---- places to listen at --------------------------------------------------------------------- */

static const char blanks[] = " \t";

static int parse_place(const char *text, size_t length, struct config_listen *listen,
                       struct error_text *err)
{
    char one[ENDPOINT_TEXT_MAX];
    struct endpoint *endpoint = &listen->at[listen->count];
    int result;

    if (length == 0)
        return error_set(err, HF_EINVAL, "there is nothing before or after a comma");
    if (listen->count == CONFIG_LISTEN_MAX)
        return error_set(err, HF_EINVAL, "more than %d places to listen at", CONFIG_LISTEN_MAX);
    if (length >= sizeof one)
        return error_set(err, HF_EINVAL, "'%.80s...' is too long for an address", text);
    memcpy(one, text, length);
    one[length] = '\0';
    result = endpoint_parse_listen(one, endpoint, err);
    if (result != HF_OK)
        return result;
    for (int i = 0; i < listen->count; i++)
        if (endpoint_same(&listen->at[i], endpoint))
            return error_set(err, HF_EINVAL, "%s is there twice", endpoint->shown);
    listen->count++;
    return HF_OK;
}

static int parse_list(const struct setting *setting, const char *text, void *field,
                      struct error_text *err)
{
    struct config_listen listen = {0};

    (void)setting;
    for (;;) {
        size_t length, next;
        int result;

        text += strspn(text, blanks);
        next = length = strcspn(text, ",");
        while (length > 0 && strchr(blanks, text[length - 1]))
            length--;
        result = parse_place(text, length, &listen, err);
        if (result != HF_OK)
            return result;
        if (!text[next])
            break;
        text += next + 1;
    }
    memcpy(field, &listen, sizeof listen);
    return HF_OK;
}

static void show_list(const struct setting *setting, const void *field, char *ret_text)
{
    const struct config_listen *listen = field;
    size_t used = 0;

    (void)setting;
    for (int i = 0; i < listen->count; i++)
        used += (size_t)snprintf(ret_text + used, SETTING_TEXT_MAX - used, "%s%s",
                                 i > 0 ? ", " : "", listen->at[i].shown);
}

static const struct setting_kind list_kind = {"ADDRESS,...", parse_list, show_list};

/* ---- one place, or none ---------------------------------------------------------------------- */

static int parse_admin(const struct setting *setting, const char *text, void *field,
                       struct error_text *err)
{
    struct endpoint endpoint = {.shown = ""};
    struct hostport at;
    int result = text[0] ? endpoint_parse(text, &endpoint, err) : HF_OK;

    (void)setting;
    if (result != HF_OK)
        return result;
    if (endpoint.path[0])
        return error_set(err, HF_EINVAL, "browsers know no unix sockets: host:port is needed");
    if (text[0] && (hostport_parse(text, strlen(text), &at) != HOSTPORT_OK || !at.has_port))
        return error_set(err, HF_EINVAL, "'%.80s': the port is missing, as in 127.0.0.1:7480",
                         text);
    memcpy(field, &endpoint, sizeof endpoint);
    return HF_OK;
}

static void show_admin(const struct setting *setting, const void *field, char *ret_text)
{
    const struct endpoint *endpoint = field;

    (void)setting;
    snprintf(ret_text, SETTING_TEXT_MAX, "%s", endpoint->shown);
}

static const struct setting_kind admin_kind = {"HOST:PORT", parse_admin, show_admin};

/* ---- paths ----------------------------------------------------------------------------------- */

static int parse_path(const struct setting *setting, const char *text, void *field,
                      struct error_text *err)
{
    size_t length = strlen(text);

    (void)setting;
    if (length > CONFIG_PATH_MAX)
        return error_set(err, HF_EINVAL, "a path has at most %d bytes", CONFIG_PATH_MAX);
    for (const char *at = text; *at; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            return error_set(err, HF_EINVAL, "the path has a control character");
    memcpy(field, text, length + 1);
    return HF_OK;
}

static void show_path(const struct setting *setting, const void *field, char *ret_text)
{
    (void)setting;
    snprintf(ret_text, SETTING_TEXT_MAX, "%s", (const char *)field);
}

static const struct setting_kind path_kind = {"PATH", parse_path, show_path};

/* ---- numbers and sizes ----------------------------------------------------------------------- */

static int parse_number(const struct setting *setting, const char *text, void *field,
                        struct error_text *err)
{
    uint64_t value;

    if (!text_to_u64(text, setting->max, &value) || value < setting->min)
        return error_set(err, HF_EINVAL, "'%.80s' is not a number from %" PRIu64 " to %" PRIu64,
                         text, setting->min, setting->max);
    memcpy(field, &value, sizeof value);
    return HF_OK;
}

static void show_number(const struct setting *setting, const void *field, char *ret_text)
{
    uint64_t value;

    (void)setting;
    memcpy(&value, field, sizeof value);
    snprintf(ret_text, SETTING_TEXT_MAX, "%" PRIu64, value);
}

static const struct setting_kind number_kind = {"N", parse_number, show_number};

/* From large to small: show_size takes the first that leaves no rest. */
static const struct {
    const char *name, *letter;
    uint64_t bytes;
} units[] = {{"GiB", "G", GIB}, {"MiB", "M", MIB}, {"KiB", "K", KIB}, {"", "", 1}};

static void show_bytes(uint64_t bytes, char *ret_text, size_t size)
{
    size_t u = 0;

    while (bytes % units[u].bytes != 0)
        u++;
    snprintf(ret_text, size, "%" PRIu64 "%s", bytes / units[u].bytes, units[u].name);
}

/* Digits and a unit, in letters of any size. */
static bool text_to_bytes(const char *text, uint64_t max, uint64_t *ret_bytes)
{
    char digits[24];
    size_t length = strspn(text, "0123456789");

    if (length >= sizeof digits)
        return false;
    memcpy(digits, text, length);
    digits[length] = '\0';
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        uint64_t value;

        if (strcasecmp(text + length, units[u].name) != 0 &&
            strcasecmp(text + length, units[u].letter) != 0)
            continue;
        if (!text_to_u64(digits, max / units[u].bytes, &value))
            return false;
        *ret_bytes = value * units[u].bytes;
        return true;
    }
    return false;
}

static int parse_size(const struct setting *setting, const char *text, void *field,
                      struct error_text *err)
{
    char least[32], most[32];
    uint64_t bytes;

    if (!text_to_bytes(text, setting->max, &bytes) || bytes < setting->min) {
        show_bytes(setting->min, least, sizeof least);
        show_bytes(setting->max, most, sizeof most);
        return error_set(err, HF_EINVAL,
                         "'%.80s' is not a size from %s to %s, in bytes, KiB, MiB or GiB", text,
                         least, most);
    }
    memcpy(field, &bytes, sizeof bytes);
    return HF_OK;
}

static void show_size(const struct setting *setting, const void *field, char *ret_text)
{
    uint64_t bytes;

    (void)setting;
    memcpy(&bytes, field, sizeof bytes);
    show_bytes(bytes, ret_text, SETTING_TEXT_MAX);
}

static const struct setting_kind size_kind = {"SIZE", parse_size, show_size};

/* ---- durations ------------------------------------------------------------------------------- */

static int parse_duration(const struct setting *setting, const char *text, void *field,
                          struct error_text *err)
{
    char least[TEXT_SPAN_MAX], most[TEXT_SPAN_MAX];
    int64_t ms;

    if (!text_to_ms(text, &ms) || ms < (int64_t)setting->min || ms > (int64_t)setting->max) {
        text_duration((int64_t)setting->min, least);
        text_duration((int64_t)setting->max, most);
        return error_set(err, HF_EINVAL,
                         "'%.80s' is not a duration from %s to %s, such as 500ms, 30s or 10m", text,
                         least, most);
    }
    memcpy(field, &ms, sizeof ms);
    return HF_OK;
}

static void show_duration(const struct setting *setting, const void *field, char *ret_text)
{
    int64_t ms;

    (void)setting;
    memcpy(&ms, field, sizeof ms);
    text_duration(ms, ret_text);
}

static const struct setting_kind duration_kind = {"DURATION", parse_duration, show_duration};

/* ---- permissions and words ------------------------------------------------------------------- */

static int parse_mode(const struct setting *setting, const char *text, void *field,
                      struct error_text *err)
{
    size_t length = strlen(text);
    uint32_t mode = 0;

    if (length <= 4 && strspn(text, "01234567") == length) {
        for (size_t i = 0; i < length; i++)
            mode = mode << 3 | (uint32_t)(text[i] - '0');
        if (mode >= setting->min && mode <= setting->max) {
            memcpy(field, &mode, sizeof mode);
            return HF_OK;
        }
    }
    return error_set(err, HF_EINVAL, "'%.80s' is not a mode from %04o to %04o, such as 0660", text,
                     (unsigned)setting->min, (unsigned)setting->max);
}

static void show_mode(const struct setting *setting, const void *field, char *ret_text)
{
    uint32_t mode;

    (void)setting;
    memcpy(&mode, field, sizeof mode);
    snprintf(ret_text, SETTING_TEXT_MAX, "%04o", mode);
}

static const struct setting_kind mode_kind = {"MODE", parse_mode, show_mode};

/* The value is the number of the choice, from 1. */
static int parse_choice(const struct setting *setting, const char *text, void *field,
                        struct error_text *err)
{
    char all[128] = "";
    size_t count = 0, used = 0;
    const char *near;

    for (; setting->choices[count]; count++) {
        int value = (int)count + 1;

        if (strcmp(text, setting->choices[count]) == 0) {
            memcpy(field, &value, sizeof value);
            return HF_OK;
        }
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", count > 0 ? ", " : "",
                                 setting->choices[count]);
        INVARIANT(used < sizeof all);
    }
    near = suggest_nearest(text, setting->choices, count);
    if (near && strlen(near) < 3)
        near = NULL; /* 'on' is one edit from 'no', and means the opposite */
    return error_set(err, HF_EINVAL, "'%.80s' is none of %s%s%s%s", text, all,
                     near ? ": did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static void show_choice(const struct setting *setting, const void *field, char *ret_text)
{
    int value;

    memcpy(&value, field, sizeof value);
    snprintf(ret_text, SETTING_TEXT_MAX, "%s", setting->choices[value - 1]);
}

static const struct setting_kind choice_kind = {"WORD", parse_choice, show_choice};

/* ---- any of them ----------------------------------------------------------------------------- */

const char *setting_value_name(const struct setting *setting)
{
    return setting->kind->value_name;
}

int setting_set(const struct setting *setting, const char *text, struct config *config,
                struct error_text *err)
{
    return setting->kind->parse(setting, text, (char *)config + setting->offset, err);
}

void setting_get(const struct setting *setting, const struct config *config,
                 char ret_text[SETTING_TEXT_MAX])
{
    ret_text[0] = '\0';
    setting->kind->show(setting, (const char *)config + setting->offset, ret_text);
}

void setting_variable(const struct setting *setting, char ret_name[SETTING_VARIABLE_MAX])
{
    snprintf(ret_name, SETTING_VARIABLE_MAX, SETTING_PREFIX "%s", setting->name);
    for (char *at = ret_name; *at; at++)
        *at = (char)(*at == '-' ? '_' : *at >= 'a' && *at <= 'z' ? *at - 'a' + 'A' : *at);
}
