/* origin.c: see origin.h. */
#include "server/origin.h"

#include <arpa/inet.h>
#include <string.h>

#define NETWORK_BYTES 8u /* of an address of IPv6 */
#define MAPPED_AT 12u    /* where the address of IPv4 stands in ::ffff:10.0.0.9 */

uint64_t origin_of(const char *address)
{
    const char *from = address[0] == '[' ? address + 1 : address;
    size_t size = strcspn(from, address[0] == '[' ? "]%" : ":");
    char host[INET6_ADDRSTRLEN];
    unsigned char bytes[sizeof(struct in6_addr)];
    uint64_t origin = ORIGIN_NONE;

    if (size >= sizeof host)
        return ORIGIN_NONE;
    memcpy(host, from, size);
    host[size] = '\0';
    if (inet_pton(AF_INET, host, bytes) == 1)
        memcpy(&origin, bytes, sizeof(struct in_addr));
    else if (inet_pton(AF_INET6, host, bytes) != 1)
        return ORIGIN_NONE;
    else if (IN6_IS_ADDR_V4MAPPED((struct in6_addr *)(void *)bytes))
        memcpy(&origin, bytes + MAPPED_AT, sizeof(struct in_addr));
    else
        memcpy(&origin, bytes, NETWORK_BYTES);
    return origin;
}
