/* address.c: "host:port" as text. A host is a number (1.2.3.4, [::1]) or a name; nothing here asks what a name
 * stands for. */
#include "base/text.h"
#include "peers/inside.h"

#include <string.h>
#include <strings.h>

#define PORT_MAX 65535
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"

static bool made_of(const char *text, const char *bytes)
{
    return text[strspn(text, bytes)] == '\0';
}

static bool parse_port(const char *text, struct address *ret_address)
{
    uint64_t port;

    if (strlen(text) >= sizeof ret_address->port || !text_to_u64(text, PORT_MAX, &port))
        return false;
    memcpy(ret_address->port, text, strlen(text) + 1);
    ret_address->port_number = (uint16_t)port;
    return true;
}

/* Inside its brackets. libuv would take any bytes behind the '%' of a link. */
static bool parse_ip6(struct address *address)
{
    address->is_number = made_of(address->host, LETTERS DIGITS ":.%-_") &&
                         uv_ip6_addr(address->host, address->port_number,
                                     (struct sockaddr_in6 *)&address->number) == 0;
    return address->is_number;
}

/* What looks like a number and is none is a slip of the pen, and no name: the resolver knows older ways to
 * write numbers, and would find somebody. */
static bool parse_ip4_or_name(struct address *address)
{
    address->is_number = uv_ip4_addr(address->host, address->port_number,
                                     (struct sockaddr_in *)&address->number) == 0;
    return address->is_number ||
           (made_of(address->host, LETTERS DIGITS "-._") && !made_of(address->host, DIGITS "."));
}

bool address_parse(const char *text, struct address *ret_address)
{
    size_t length = strnlen(text, PEERS_ADDRESS_MAX + 1);
    const char *colon = length <= PEERS_ADDRESS_MAX ? strrchr(text, ':') : NULL;
    size_t size = colon ? (size_t)(colon - text) : 0;
    struct address address = {0};
    bool is_bracketed = size > 2 && text[0] == '[' && text[size - 1] == ']';

    if (size == 0 || !parse_port(colon + 1, &address))
        return false;
    memcpy(address.host, is_bracketed ? text + 1 : text, is_bracketed ? size - 2 : size);
    if (is_bracketed ? !parse_ip6(&address) : !parse_ip4_or_name(&address))
        return false;
    *ret_address = address;
    return true;
}

bool address_is_loopback(const struct address *address)
{
    const struct sockaddr_in *ip4 = (const struct sockaddr_in *)&address->number;
    const struct sockaddr_in6 *ip6 = (const struct sockaddr_in6 *)&address->number;

    if (!address->is_number)
        return strcasecmp(address->host, "localhost") == 0;
    return address->number.ss_family == AF_INET ? ntohl(ip4->sin_addr.s_addr) >> 24 == 127
                                                : IN6_IS_ADDR_LOOPBACK(&ip6->sin6_addr);
}

bool peers_address_ok(const char *address)
{
    struct address parsed;

    return address_parse(address, &parsed) && parsed.port_number != 0;
}

bool peers_address_is_loopback(const char *address)
{
    struct address parsed;

    return address_parse(address, &parsed) && address_is_loopback(&parsed);
}
