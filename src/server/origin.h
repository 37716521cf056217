/* origin.h: where a client comes from, for limits that are fair between addresses. */
#ifndef SERVER_ORIGIN_H
#define SERVER_ORIGIN_H

#include <stdint.h>

#define ORIGIN_NONE 0u /* no address: a unix socket */

/* address: as connections are shown: "10.0.0.9:51234", "[2001:db8::1]:51234"; what follows does not count. Of IPv6 the network alone: whoever
 * has one address of it has them all. */
uint64_t origin_of(const char *address);
/* The place of an origin in a table of 2^bits. */
static inline uint32_t origin_slot(uint64_t origin, unsigned bits)
{
    return (uint32_t)(origin * UINT64_C(0x9e3779b97f4a7c15) >> (64 - bits));
}

#endif
