/* address.c: reading addresses and secrets, strictly.
 *
 * Nothing here quotes what it refuses. A password with a stray '@', ':' or '/' in it can land in
 * any part of a URL that was taken apart, also where a host or a port was expected, and messages
 * end up in logs. */
#include "engines/net/address.h"
#include "base/text.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
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

static int parse_port(const char *text, size_t length, char ret_port[6], struct error_text *err)
{
    char digits[6];
    uint64_t port;

    if (length >= 1 && length < sizeof digits) {
        memcpy(digits, text, length);
        digits[length] = '\0';
        if (text_to_u64(digits, 65535, &port) && port > 0) {
            snprintf(ret_port, sizeof digits, "%u", (unsigned)port & 0xffff);
            return HF_OK;
        }
    }
    return error_set(err, HF_EINVAL, "store URL: a port is a number from 1 to 65535");
}

static int parse_name(const char *text, size_t length, char ret_host[ADDRESS_HOST_MAX + 1],
                      struct error_text *err)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789.-_";

    if (length == 0)
        return error_set(err, HF_EINVAL, "store URL: the name of a host is missing");
    if (length > ADDRESS_HOST_MAX)
        return error_set(err, HF_EINVAL, "store URL: the name of a host is longer than %d bytes",
                         ADDRESS_HOST_MAX);
    for (size_t i = 0; i < length; i++)
        if (!memchr(allowed, text[i], sizeof allowed - 1))
            return error_set(err, HF_EINVAL,
                             "store URL: the name of a host has only letters, digits, '.', '-' and "
                             "'_'; an IPv6 address goes in brackets, as in [::1]:6379");
    memcpy(ret_host, text, length);
    ret_host[length] = '\0';
    return HF_OK;
}

static int parse_ipv6(const char *text, size_t length, char ret_host[ADDRESS_HOST_MAX + 1],
                      struct error_text *err)
{
    char number[INET6_ADDRSTRLEN];
    struct in6_addr binary;

    if (length < sizeof number && !memchr(text, '\0', length)) {
        memcpy(number, text, length);
        number[length] = '\0';
        if (inet_pton(AF_INET6, number, &binary) == 1) {
            memcpy(ret_host, number, length + 1);
            return HF_OK;
        }
    }
    return error_set(err, HF_EINVAL, "store URL: what is in brackets is not an IPv6 address");
}

static int parse_host(const char *text, size_t length, const char *default_port,
                      struct address *address, struct error_text *err)
{
    bool bracketed = length > 0 && text[0] == '[';
    const char *end = text + length, *host_end, *after;
    int result;

    if (memchr(text, '@', length))
        return error_set(err, HF_EINVAL,
                         "store URL: a '@' within a user name or password is written %%40");
    if (bracketed) {
        host_end = memchr(text, ']', length);
        if (!host_end)
            return error_set(err, HF_EINVAL, "store URL: '[' without ']'");
        after = host_end + 1;
        result = parse_ipv6(text + 1, (size_t)(host_end - text - 1), address->host, err);
    } else {
        host_end = memrchr(text, ':', length);
        after = host_end = host_end ? host_end : end;
        result = parse_name(text, (size_t)(host_end - text), address->host, err);
    }
    if (result != HF_OK)
        return result;
    if (after < end && *after != ':')
        return error_set(err, HF_EINVAL, "store URL: after ']' comes the end or a port");
    if (after < end)
        result = parse_port(after + 1, (size_t)(end - after - 1), address->port, err);
    else
        result = parse_port(default_port, strlen(default_port), address->port, err);
    if (result == HF_OK)
        snprintf(address->shown, sizeof address->shown, bracketed ? "[%s]:%s" : "%s:%s",
                 address->host, address->port);
    return result;
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

static int read_password_file(const char *path, char ret_password[PASSWORD_MAX + 1],
                              struct error_text *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY), result;

    if (fd < 0)
        return error_set_errno(err, HF_EINVAL, errno, "password-file %s", path);
    result = password_read(fd, path, HF_EINVAL, ret_password, err);
    close(fd);
    return result;
}

static int read_password(struct url *url, struct access *access, struct error_text *err)
{
    const char *path = url_get(url, "password-file");
    const char *variable;

    if (path && access->password[0])
        return error_set(err, HF_EINVAL,
                         "store URL: there is a password both in it and in its password-file");
    if (path)
        return read_password_file(path, access->password, err);
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

void access_wipe(struct access *access)
{
    explicit_bzero(access, sizeof *access);
}
