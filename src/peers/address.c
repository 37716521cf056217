/* address.c: "host:port" as text. A host is a number (1.2.3.4, [::1]) or a name; nothing here asks what a name
 * stands for. */
#include "base/hostport.h"
#include "peers/inside.h"

#include <stdio.h>
#include <string.h>

_Static_assert(PEERS_ADDRESS_MAX >= HOSTPORT_HOST_MAX + sizeof "[]:65535" - 1,
               "every address fits");

bool address_parse(const char *text, struct address *ret_address)
{
    struct address address = {0};
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

bool peers_address_ok(const char *address)
{
    struct address parsed;

    return address_parse(address, &parsed) && parsed.port_number != 0;
}

bool peers_address_is_loopback(const char *address)
{
    struct address parsed;

    return address_parse(address, &parsed) && parsed.is_loopback;
}
