/* address.c: reading addresses and secrets, strictly.
 *
 * Nothing here quotes what it refuses. A password with a stray '@', ':' or '/' in it can land in
 * any part of a URL that was taken apart, also where a host or a port was expected, and messages
 * end up in logs. */
#include "net/address.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- where ----------------------------------------------------------------------------------- */

static int parse_path(const char *text, size_t length, struct address *address,
                      struct error_text *err)
{
    if (!text_percent_decode(text, length, address->path, sizeof address->path))
        return error_set(err, HF_EINVAL,
                         "store URL: the path of the unix socket is badly percent-encoded or "
                         "longer than %d bytes",
                         ADDRESS_PATH_MAX);
    for (const char *at = address->path; *at; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            return error_set(err, HF_EINVAL,
                             "store URL: the path of the unix socket has a control character");
    snprintf(address->shown, sizeof address->shown, "%s", address->path);
    return HF_OK;
}

static int refuse_host(enum hostport_fault fault, struct error_text *err)
{
    switch (fault) {
    case HOSTPORT_NO_HOST:
        return error_set(err, HF_EINVAL, "store URL: the name of a host is missing");
    case HOSTPORT_LONG:
        return error_set(err, HF_EINVAL, "store URL: the name of a host is longer than %d bytes",
                         HOSTPORT_HOST_MAX);
    case HOSTPORT_NOT_IPV4:
        return error_set(err, HF_EINVAL,
                         "store URL: a host of digits and dots is an IPv4 address, with all its "
                         "four numbers");
    case HOSTPORT_NOT_IPV6:
        return error_set(err, HF_EINVAL, "store URL: what is in brackets is not an IPv6 address");
    case HOSTPORT_UNCLOSED:
        return error_set(err, HF_EINVAL, "store URL: '[' without ']'");
    case HOSTPORT_AFTER_BRACKET:
        return error_set(err, HF_EINVAL, "store URL: after ']' comes the end or a port");
    case HOSTPORT_PORT:
        return error_set(err, HF_EINVAL, "store URL: a port is a number from 1 to 65535");
    case HOSTPORT_NOT_NAME:
    case HOSTPORT_UNBRACKETED:
    case HOSTPORT_OK:
        break;
    }
    return error_set(err, HF_EINVAL,
                     "store URL: the name of a host has only letters, digits, '-' and '_', and "
                     "single dots between them; an IPv6 address goes in brackets, as in "
                     "[::1]:6379");
}

static int parse_host(const char *text, size_t length, const char *default_port,
                      struct address *address, struct error_text *err)
{
    struct hostport at;
    enum hostport_fault fault = hostport_parse(text, length, &at);

    if (length > 0 && memchr(text, '@', length))
        return error_set(err, HF_EINVAL,
                         "store URL: a '@' within a user name or password is written %%40");
    if (fault == HOSTPORT_OK && at.has_port && at.port == 0)
        fault = HOSTPORT_PORT;
    if (fault != HOSTPORT_OK)
        return refuse_host(fault, err);
    memcpy(address->host, at.host, sizeof at.host);
    if (at.has_port)
        snprintf(address->port, sizeof address->port, "%u", (unsigned)at.port);
    else
        snprintf(address->port, sizeof address->port, "%s", default_port);
    snprintf(address->shown, sizeof address->shown, at.kind == HOSTPORT_IPV6 ? "[%s]:%s" : "%s:%s",
             address->host, address->port);
    return HF_OK;
}

int address_split(const char *rest, struct address_parts *ret_parts, struct error_text *err)
{
    const char *at;

    *ret_parts = (struct address_parts){0};
    if (*rest && strncmp(rest, "//", 2) != 0)
        return error_set(err, HF_EINVAL, "store URL: after the scheme comes //host");
    if (*rest)
        rest += 2;
    ret_parts->hosts_length = strcspn(rest, "/");
    ret_parts->hosts = rest;
    ret_parts->path = rest + ret_parts->hosts_length;
    at = memrchr(rest, '@', ret_parts->hosts_length);
    if (at) {
        ret_parts->userinfo = rest;
        ret_parts->userinfo_length = (size_t)(at - rest);
        ret_parts->hosts = at + 1;
        ret_parts->hosts_length -= ret_parts->userinfo_length + 1;
    }
    return HF_OK;
}

bool address_same(const struct address *a, const struct address *b)
{
    return strcmp(a->host, b->host) == 0 && strcmp(a->port, b->port) == 0 &&
           strcmp(a->path, b->path) == 0;
}

int address_parse(const char *text, size_t length, const char *default_port,
                  struct address *ret_address, struct error_text *err)
{
    struct address address = {.host = ""};
    bool is_path = length > 0 && (text[0] == '/' || (length >= 3 && !strncasecmp(text, "%2f", 3)));
    int result = is_path ? parse_path(text, length, &address, err)
                         : parse_host(text, length, default_port, &address, err);

    if (result == HF_OK)
        *ret_address = address;
    return result;
}

/* ---- how to be let in ------------------------------------------------------------------------ */

static int read_userinfo(const char *text, size_t length, struct access *access,
                         struct error_text *err)
{
    const char *colon = memchr(text, ':', length);
    size_t user_length = colon ? (size_t)(colon - text) : length;

    if (!text_percent_decode(text, user_length, access->user, sizeof access->user))
        return error_set(
            err, HF_EINVAL,
            "store URL: the user name is badly percent-encoded or longer than %d bytes",
            PASSWORD_MAX);
    if (colon && !text_percent_decode(colon + 1, length - user_length - 1, access->password,
                                      sizeof access->password))
        return error_set(err, HF_EINVAL,
                         "store URL: the password is badly percent-encoded or longer than %d bytes",
                         PASSWORD_MAX);
    return HF_OK;
}

/* Where it will be found again, whatever the working directory is by then. Symbolic links stay: they may lead elsewhere by then. */
static void keep_path(const char *path, char ret_path[ADDRESS_FILE_MAX + 1])
{
    size_t length = strlen(path), used = 0;

    if (path[0] != '/') {
        if (!getcwd(ret_path, ADDRESS_FILE_MAX)) {
            ret_path[0] = '\0';
            return;
        }
        used = strlen(ret_path);
        ret_path[used++] = '/';
    }
    if (used + length <= ADDRESS_FILE_MAX)
        memcpy(ret_path + used, path, length + 1);
    else
        ret_path[0] = '\0';
}

/* A pipe, such as the shell's <(...), gives its bytes once. */
static bool is_regular(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

static int read_password_file(const char *path, struct access *access, struct error_text *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY), result;

    if (fd < 0)
        return error_set_errno(err, HF_EINVAL, errno, "password-file %s", path);
    result = password_read(fd, "password-file", path, HF_EINVAL, access->password, err);
    if (result == HF_OK && is_regular(fd))
        keep_path(path, access->password_file);
    close(fd);
    return result;
}

bool access_password(const struct access *access, char password[PASSWORD_MAX + 1])
{
    char read[PASSWORD_MAX + 1] = "";
    struct error_text ignored;
    bool is_read;
    int fd;

    if (!access->password_file[0])
        return false;
    fd = open(access->password_file, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return false;
    is_read = is_regular(fd) && password_read(fd, "password-file", access->password_file, HF_EINVAL,
                                              read, &ignored) == HF_OK;
    close(fd);
    if (is_read)
        memcpy(password, read, sizeof read);
    explicit_bzero(read, sizeof read);
    return is_read;
}

void access_add_origin(const struct access *access, struct error_text *err)
{
    size_t size = strlen(err->text);

    if (access->password_file[0])
        snprintf(err->text + size, sizeof err->text - size, " (from password-file %s)",
                 access->password_file);
}

void access_add_unused(const char *conf, struct error_text *err)
{
    size_t size = strlen(err->text);

    if (conf)
        snprintf(err->text + size, sizeof err->text - size,
                 " (that of %s is for the url there, and not used for one from --on, HOLDFAST_URL "
                 "or hf_open)",
                 conf);
}

static int read_password(struct url *url, struct access *access, struct error_text *err)
{
    const char *path = url_get(url, "password-file");
    const char *variable;

    if (path && access->password[0])
        return error_set(err, HF_EINVAL,
                         "store URL: there is a password both in it and in its password-file");
    if (path)
        return read_password_file(path, access, err);
    if (access->password[0])
        return HF_OK;
    variable = secure_getenv("HOLDFAST_PASSWORD");
    if (variable && strnlen(variable, PASSWORD_MAX + 1) > PASSWORD_MAX)
        return error_set(err, HF_EINVAL, "HOLDFAST_PASSWORD: longer than %d bytes", PASSWORD_MAX);
    if (variable)
        memcpy(access->password, variable, strlen(variable) + 1);
    return HF_OK;
}

static int read_file_option(struct url *url, const char *key, char ret_path[ADDRESS_FILE_MAX + 1],
                            struct error_text *err)
{
    const char *value = url_get(url, key);
    size_t length = value ? strlen(value) : 0;

    if (!value)
        return HF_OK;
    if (length == 0 || length > ADDRESS_FILE_MAX)
        return error_set(err, HF_EINVAL, "store URL: %s is the path of a file, at most %d bytes",
                         key, ADDRESS_FILE_MAX);
    memcpy(ret_path, value, length + 1);
    return HF_OK;
}

static int read_certificates(struct url *url, struct access *access, struct error_text *err)
{
    int result = read_file_option(url, "ca-file", access->ca_file, err);

    if (result == HF_OK)
        result = read_file_option(url, "cert-file", access->cert_file, err);
    if (result == HF_OK)
        result = read_file_option(url, "key-file", access->key_file, err);
    if (result == HF_OK && !access->cert_file[0] != !access->key_file[0])
        return error_set(err, HF_EINVAL, "store URL: cert-file and key-file come together");
    return result;
}

int access_read(struct url *url, const char *userinfo, size_t userinfo_length,
                struct access *ret_access, struct error_text *err)
{
    struct access access = {.user = ""};
    int result = userinfo ? read_userinfo(userinfo, userinfo_length, &access, err) : HF_OK;

    if (result == HF_OK)
        result = read_password(url, &access, err);
    if (result == HF_OK)
        result = read_certificates(url, &access, err);
    if (result == HF_OK)
        *ret_access = access;
    access_wipe(&access);
    return result;
}

int access_read_revocations(struct url *url, const char *secure, struct access *access,
                            struct error_text *err)
{
    int result = read_file_option(url, "crl-file", access->crl_file, err);

    if (result == HF_OK && !access->tls &&
        (access->ca_file[0] || access->cert_file[0] || access->crl_file[0]))
        return error_set(err, HF_EINVAL,
                         "store URL: ca-file, cert-file, key-file and crl-file are for TLS: use %s",
                         secure);
    return result;
}

void access_wipe(struct access *access)
{
    explicit_bzero(access, sizeof *access);
}
