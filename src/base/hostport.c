#include "base/hostport.h"
#include "base/text.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

#define PORT_DIGITS 5
#define PORT_MAX 65535
#define DIGITS "0123456789"
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

/* Labels with a dot between two of them, and perhaps one at the end. */
static bool is_name(const char *host)
{
    for (;;) {
        size_t label = strspn(host, LETTERS DIGITS "-_");

        if (label == 0 || label > HOSTPORT_LABEL_MAX || host[0] == '-')
            return false;
        host += label;
        if (!*host || strcmp(host, ".") == 0)
            return true;
        if (*host++ != '.')
            return false;
    }
}

static enum hostport_fault check_ipv6(struct hostport *ret)
{
    struct in6_addr number;

    if (inet_pton(AF_INET6, ret->host, &number) != 1)
        return HOSTPORT_NOT_IPV6;
    ret->kind = HOSTPORT_IPV6;
    ret->loopback = IN6_IS_ADDR_LOOPBACK(&number);
    return HOSTPORT_OK;
}

static enum hostport_fault check_host(struct hostport *ret)
{
    struct in_addr number;

    if (inet_pton(AF_INET, ret->host, &number) == 1) {
        ret->kind = HOSTPORT_IPV4;
        ret->loopback = ntohl(number.s_addr) >> 24 == 127;
        return HOSTPORT_OK;
    }
    if (strspn(ret->host, DIGITS ".") == strlen(ret->host) || inet_aton(ret->host, &number) != 0)
        return HOSTPORT_NOT_IPV4;
    ret->kind = HOSTPORT_NAME;
    ret->loopback = strcasecmp(ret->host, "localhost") == 0;
    return is_name(ret->host) ? HOSTPORT_OK : HOSTPORT_NOT_NAME;
}

static enum hostport_fault parse_port(const char *text, size_t length, struct hostport *ret)
{
    char digits[PORT_DIGITS + 1] = "";
    uint64_t port;

    if (length == 0 || length > PORT_DIGITS)
        return HOSTPORT_PORT;
    memcpy(digits, text, length);
    if (strspn(digits, DIGITS) != length || !text_to_u64(digits, PORT_MAX, &port))
        return HOSTPORT_PORT;
    ret->port = (uint16_t)port;
    ret->has_port = true;
    return HOSTPORT_OK;
}

/* An unbracketed host has no colon but the port's. */
static enum hostport_fault split(const char *text, size_t length, bool bracketed,
                                 size_t *ret_host_end, size_t *ret_after)
{
    const char *end = length ? memchr(text, bracketed ? ']' : ':', length) : NULL;

    *ret_host_end = end ? (size_t)(end - text) : length;
    *ret_after = *ret_host_end + (bracketed ? 1 : 0);
    if (bracketed && !end)
        return HOSTPORT_UNCLOSED;
    if (bracketed && *ret_after < length && text[*ret_after] != ':')
        return HOSTPORT_AFTER_BRACKET;
    if (!bracketed && end && memchr(end + 1, ':', length - *ret_host_end - 1))
        return HOSTPORT_UNBRACKETED;
    return HOSTPORT_OK;
}

enum hostport_fault hostport_parse(const char *text, size_t length, struct hostport *ret)
{
    struct hostport result = {.host = ""};
    bool bracketed = length > 0 && text[0] == '[';
    size_t begin = bracketed ? 1 : 0, end, after;
    enum hostport_fault fault = split(text, length, bracketed, &end, &after);

    if (fault != HOSTPORT_OK)
        return fault;
    if (end == begin)
        return bracketed ? HOSTPORT_NOT_IPV6 : HOSTPORT_NO_HOST;
    if (end - begin > HOSTPORT_HOST_MAX)
        return HOSTPORT_LONG;
    if (memchr(text + begin, '\0', end - begin))
        return bracketed ? HOSTPORT_NOT_IPV6 : HOSTPORT_NOT_NAME;
    memcpy(result.host, text + begin, end - begin);
    fault = bracketed ? check_ipv6(&result) : check_host(&result);
    if (fault == HOSTPORT_OK && after < length)
        fault = parse_port(text + after + 1, length - after - 1, &result);
    if (fault == HOSTPORT_OK)
        *ret = result;
    return fault;
}
