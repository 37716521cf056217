#include "server/endpoint.h"
#include "base/text.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define LABEL_MAX 63 /* bytes between two dots of a host's name */

static const char digits_and_dots[] = "0123456789.";

static int parse_path(const char *path, struct endpoint *endpoint, struct error_text *err)
{
    size_t length = strlen(path);

    if (path[0] != '/')
        return error_set(err, HF_EINVAL,
                         "'unix:' is followed by the socket's whole path, as in "
                         "unix:/run/holdfast/holdfastd.sock");
    if (length > ENDPOINT_PATH_MAX || path[length - 1] == '/')
        return error_set(err, HF_EINVAL,
                         "'%.120s' is not the path of a unix socket: at most %d bytes, and no '/' "
                         "at its end",
                         path, ENDPOINT_PATH_MAX);
    for (const char *at = path; *at; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            return error_set(err, HF_EINVAL, "the path of a unix socket has a control character");
    memcpy(endpoint->path, path, length + 1);
    endpoint->loopback = true;
    snprintf(endpoint->shown, sizeof endpoint->shown, "unix:%s", path);
    return HF_OK;
}

static bool is_host_name(const char *host)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789-_";

    for (;;) {
        size_t label = strspn(host, allowed);

        if (label == 0 || label > LABEL_MAX || host[0] == '-')
            return false;
        host += label;
        if (!*host)
            return true;
        if (*host++ != '.')
            return false;
    }
}

static int check_ipv6(struct endpoint *endpoint, struct error_text *err)
{
    struct in6_addr number;

    if (inet_pton(AF_INET6, endpoint->host, &number) != 1)
        return error_set(err, HF_EINVAL, "'[%.80s]' is not an IPv6 address", endpoint->host);
    endpoint->loopback = IN6_IS_ADDR_LOOPBACK(&number);
    return HF_OK;
}

static int check_host(struct endpoint *endpoint, struct error_text *err)
{
    const char *host = endpoint->host;
    struct in_addr number;

    if (strchr(host, ':'))
        return error_set(err, HF_EINVAL,
                         "'%.80s': an IPv6 address goes in brackets, as in [::1]:%d", host,
                         ENDPOINT_PORT_DEFAULT);
    if (!*host || strcmp(host, "*") == 0)
        return error_set(err, HF_EINVAL,
                         "the host is missing: for every address of this machine write 0.0.0.0 or "
                         "[::]");
    if (inet_pton(AF_INET, host, &number) == 1) {
        endpoint->loopback = ntohl(number.s_addr) >> 24 == 127;
        return HF_OK;
    }
    /* The resolver would read "7420" and "127.1" as addresses, and hardly the ones that were meant. */
    if (strspn(host, digits_and_dots) == strlen(host))
        return error_set(err, HF_EINVAL, "'%.80s' is not an IPv4 address, such as 127.0.0.1", host);
    if (!is_host_name(host))
        return error_set(err, HF_EINVAL, "'%.80s' is not the name of a host", host);
    endpoint->loopback = strcasecmp(host, "localhost") == 0;
    return HF_OK;
}

static int parse_port(const char *text, uint16_t *ret_port, struct error_text *err)
{
    uint64_t port;

    if (!text_to_u64(text, UINT16_MAX, &port))
        return error_set(err, HF_EINVAL, "'%.80s' is not a port, a number up to %d", text,
                         UINT16_MAX);
    *ret_port = (uint16_t)port;
    return HF_OK;
}

/* Where host and port are. An unbracketed host has no colon but the port's; what has more goes to
 * check_host as it is, which knows what to say. */
static int split(const char *text, bool bracketed, size_t *ret_length, const char **ret_port,
                 struct error_text *err)
{
    const char *end = bracketed ? strchr(text, ']') : strrchr(text, ':'), *port = NULL;
    size_t length = strlen(text);

    if (bracketed && !end)
        return error_set(err, HF_EINVAL, "'%.80s': '[' without ']'", text);
    if (bracketed && end[1] && end[1] != ':')
        return error_set(err, HF_EINVAL, "'%.80s': after ']' comes the end, or ':' and a port",
                         text);
    if (bracketed && end[1])
        port = end + 2;
    if (!bracketed && end && strchr(text, ':') == end)
        port = end + 1;
    if (bracketed || port)
        length = (size_t)(end - text);
    if (length > ENDPOINT_HOST_MAX)
        return error_set(err, HF_EINVAL, "'%.80s...': the name of a host has at most %d bytes",
                         text, ENDPOINT_HOST_MAX);
    *ret_length = length;
    *ret_port = port;
    return HF_OK;
}

static int parse_tcp(const char *text, struct endpoint *endpoint, struct error_text *err)
{
    bool bracketed = text[0] == '[';
    const char *port;
    size_t length;
    int result;

    text += bracketed;
    result = split(text, bracketed, &length, &port, err);
    if (result != HF_OK)
        return result;
    memcpy(endpoint->host, text, length);
    endpoint->port = ENDPOINT_PORT_DEFAULT;
    result = bracketed ? check_ipv6(endpoint, err) : check_host(endpoint, err);
    if (result == HF_OK && port)
        result = parse_port(port, &endpoint->port, err);
    if (result == HF_OK)
        snprintf(endpoint->shown, sizeof endpoint->shown, bracketed ? "[%s]:%u" : "%s:%u",
                 endpoint->host, (unsigned)endpoint->port);
    return result;
}

int endpoint_parse(const char *text, struct endpoint *ret_endpoint, struct error_text *err)
{
    struct endpoint endpoint = {.path = ""};
    int result = strncmp(text, "unix:", 5) == 0 ? parse_path(text + 5, &endpoint, err)
                                                : parse_tcp(text, &endpoint, err);

    if (result == HF_OK)
        *ret_endpoint = endpoint;
    return result;
}
