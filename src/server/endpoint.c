#include "server/endpoint.h"
#include "base/hostport.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define EVERYWHERE "the host is missing: for every address of this machine write 0.0.0.0 or [::]"

#define WITH_TLS "tls:"

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

/* `text` is what somebody wrote; the messages quote the part that is wrong. */
static int refuse_host(const char *text, enum hostport_fault fault, struct error_text *err)
{
    const char *bracket = text[0] == '[' ? strchr(text, ']') : NULL;
    const char *colon = strrchr(bracket ? bracket : text, ':');
    int length = (int)(colon ? (size_t)(colon - text) : strlen(text));

    switch (fault) {
    case HOSTPORT_NO_HOST:
        return error_set(err, HF_EINVAL, EVERYWHERE);
    case HOSTPORT_LONG:
        return error_set(err, HF_EINVAL, "'%.80s...': the name of a host has at most %d bytes",
                         text, HOSTPORT_HOST_MAX);
    case HOSTPORT_NOT_IPV4:
        if (!colon && strspn(text, "0123456789") == strlen(text))
            return error_set(
                err, HF_EINVAL,
                "'%.80s': the host is missing: 127.0.0.1:%.80s is for this machine, and "
                "0.0.0.0:%.80s for every address of it",
                text, text, text);
        return error_set(err, HF_EINVAL, "'%.*s' is not an IPv4 address, such as 127.0.0.1",
                         length < 80 ? length : 80, text);
    case HOSTPORT_NOT_IPV6:
        return error_set(err, HF_EINVAL, "'%.*s' is not an IPv6 address", length < 80 ? length : 80,
                         text);
    case HOSTPORT_UNBRACKETED:
        return error_set(err, HF_EINVAL,
                         "'%.80s': an IPv6 address goes in brackets, as in [::1]:%d", text,
                         ENDPOINT_PORT_DEFAULT);
    case HOSTPORT_UNCLOSED:
        return error_set(err, HF_EINVAL, "'%.80s': '[' without ']'", text);
    case HOSTPORT_AFTER_BRACKET:
        return error_set(err, HF_EINVAL, "'%.80s': after ']' comes the end, or ':' and a port",
                         text);
    case HOSTPORT_PORT:
        return error_set(err, HF_EINVAL, "'%.80s' is not a port, a number up to %d", colon + 1,
                         UINT16_MAX);
    case HOSTPORT_NOT_NAME:
    case HOSTPORT_OK:
        break;
    }
    return error_set(err, HF_EINVAL, "'%.*s' is not the name of a host", length < 80 ? length : 80,
                     text);
}

static void show(struct endpoint *endpoint)
{
    snprintf(endpoint->shown, sizeof endpoint->shown,
             strchr(endpoint->host, ':') ? "%s[%s]:%u" : "%s%s:%u", endpoint->tls ? WITH_TLS : "",
             endpoint->host, (unsigned)endpoint->port);
}

static int parse_tcp(const char *text, struct endpoint *endpoint, struct error_text *err)
{
    struct hostport at;
    enum hostport_fault fault = hostport_parse(text, strlen(text), &at);

    if (text[0] == '*' && (!text[1] || text[1] == ':'))
        return error_set(err, HF_EINVAL, EVERYWHERE);
    if (fault != HOSTPORT_OK)
        return refuse_host(text, fault, err);
    memcpy(endpoint->host, at.host, sizeof at.host);
    endpoint->port = at.has_port ? at.port : ENDPOINT_PORT_DEFAULT;
    endpoint->loopback = at.loopback;
    show(endpoint);
    return HF_OK;
}

int endpoint_parse(const char *text, struct endpoint *ret_endpoint, struct error_text *err)
{
    struct endpoint endpoint = {.path = ""};
    /* A host of this name would be shown as what is read as a path. */
    bool is_path = strncmp(text, "unix", 4) == 0 && (text[4] == ':' || !text[4]);
    int result = is_path ? parse_path(text + 4 + (text[4] == ':'), &endpoint, err)
                         : parse_tcp(text, &endpoint, err);

    if (result == HF_OK)
        *ret_endpoint = endpoint;
    return result;
}

int endpoint_parse_listen(const char *text, struct endpoint *ret_endpoint, struct error_text *err)
{
    size_t size = strlen(WITH_TLS);
    struct endpoint endpoint = {.tls = strncmp(text, WITH_TLS, size - 1) == 0 &&
                                       (text[size - 1] == ':' || !text[size - 1])};
    int result;

    if (!endpoint.tls)
        return endpoint_parse(text, ret_endpoint, err);
    text += text[size - 1] ? size : size - 1;
    if (strncmp(text, "unix:", 5) == 0)
        return error_set(err, HF_EINVAL,
                         "'tls:unix:' is of no use: a unix socket is for this machine only");
    result = parse_tcp(text, &endpoint, err);
    if (result == HF_OK)
        *ret_endpoint = endpoint;
    return result;
}

bool endpoint_same(const struct endpoint *a, const struct endpoint *b)
{
    return strcmp(a->path, b->path) == 0 && strcasecmp(a->host, b->host) == 0 && a->port == b->port;
}

const char *endpoint_address(const struct endpoint *endpoint)
{
    return endpoint->shown + (endpoint->tls ? strlen(WITH_TLS) : 0);
}

void endpoint_set_port(struct endpoint *endpoint, uint16_t port)
{
    endpoint->port = port;
    show(endpoint);
}
