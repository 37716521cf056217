/* address.c: "host:port" as text. A host is a number (1.2.3.4, [::1]) or a name; nothing here asks what a name
 * stands for. */
#include "peers/inside.h"

#include <stdio.h>
#include <string.h>

_Static_assert(PEERS_ADDRESS_MAX >= HOSTPORT_HOST_MAX + sizeof "[]:65535" - 1,
               "every address fits");

bool peer_address_parse(const char *text, struct peer_address *ret_address)
{
    struct peer_address address = {0};
    struct hostport at;

    if (hostport_parse(text, strnlen(text, PEERS_ADDRESS_MAX + 1), &at) != HOSTPORT_OK ||
        !at.has_port)
        return false;
    memcpy(address.host, at.host, sizeof at.host);
    address.port_number = at.port;
    address.is_loopback = at.loopback;
    snprintf(address.port, sizeof address.port, "%u", (unsigned)at.port);
    address.is_number = at.kind != HOSTPORT_NAME;
    if (at.kind == HOSTPORT_IPV4)
        uv_ip4_addr(at.host, at.port, (struct sockaddr_in *)&address.number);
    if (at.kind == HOSTPORT_IPV6)
        uv_ip6_addr(at.host, at.port, (struct sockaddr_in6 *)&address.number);
    *ret_address = address;
    return true;
}

/* The listener of both protocols shows an IPv4 address as one of IPv6. */
static void write_ip6(const struct sockaddr_in6 *at, char ret_text[PEERS_ADDRESS_MAX + 1])
{
    char host[INET6_ADDRSTRLEN];
    struct in_addr ip4;

    if (IN6_IS_ADDR_V4MAPPED(&at->sin6_addr)) {
        memcpy(&ip4, &at->sin6_addr.s6_addr[12], sizeof ip4);
        uv_inet_ntop(AF_INET, &ip4, host, sizeof host);
        snprintf(ret_text, PEERS_ADDRESS_MAX + 1, "%s:%u", host, (unsigned)ntohs(at->sin6_port));
        return;
    }
    uv_ip6_name(at, host, sizeof host);
    snprintf(ret_text, PEERS_ADDRESS_MAX + 1, "[%s]:%u", host, (unsigned)ntohs(at->sin6_port));
}

void peer_address_of(const uv_tcp_t *tcp, char ret_text[PEERS_ADDRESS_MAX + 1])
{
    struct sockaddr_storage at = {0};
    int size = sizeof at;
    char host[INET_ADDRSTRLEN];

    ret_text[0] = '\0';
    if (uv_tcp_getpeername(tcp, (struct sockaddr *)&at, &size) != 0)
        return;
    if (at.ss_family == AF_INET6) {
        write_ip6((const struct sockaddr_in6 *)&at, ret_text);
    } else if (at.ss_family == AF_INET) {
        const struct sockaddr_in *ip4 = (const struct sockaddr_in *)&at;

        uv_ip4_name(ip4, host, sizeof host);
        snprintf(ret_text, PEERS_ADDRESS_MAX + 1, "%s:%u", host, (unsigned)ntohs(ip4->sin_port));
    }
}

bool peers_address_ok(const char *address)
{
    struct peer_address parsed;

    return peer_address_parse(address, &parsed) && parsed.port_number != 0;
}

bool peers_address_is_loopback(const char *address)
{
    struct peer_address parsed;

    return peer_address_parse(address, &parsed) && parsed.is_loopback;
}
