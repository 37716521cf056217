/* hostport.h: "host:port" as text: the one reader of it, for places to listen at, for peers and for stores. Nothing is
 * resolved.
 *
 *     HOST, HOST:PORT, [IPV6], [IPV6]:PORT      HOST: an IPv4 address of four numbers, or a name
 *
 * What looks like a number and is no such address is refused, and never taken for a name: resolvers know older ways to
 * write numbers ("127.1", "7420", "0x7f.1"), and would find somebody, hardly the one who was meant. Nor is there a "%eth0" in an IPv6
 * address: it means something on one machine only. A name may end with a dot. */
#ifndef BASE_HOSTPORT_H
#define BASE_HOSTPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HOSTPORT_HOST_MAX 253 /* bytes of a host's name in the DNS */
#define HOSTPORT_LABEL_MAX 63 /* of them between two dots */

enum hostport_kind { HOSTPORT_NAME = 1, HOSTPORT_IPV4, HOSTPORT_IPV6 };

enum hostport_fault {
    HOSTPORT_OK = 0,
    HOSTPORT_NO_HOST,
    HOSTPORT_LONG,          /* more than HOSTPORT_HOST_MAX bytes */
    HOSTPORT_NOT_NAME,      /* what no name has */
    HOSTPORT_NOT_IPV4,      /* looks like a number, but is no address */
    HOSTPORT_NOT_IPV6,      /* in brackets */
    HOSTPORT_UNBRACKETED,   /* several colons */
    HOSTPORT_UNCLOSED,      /* '[' without ']' */
    HOSTPORT_AFTER_BRACKET, /* something other than the end or ':' */
    HOSTPORT_PORT           /* not a number of one to five digits, up to 65535 */
};

struct hostport {
    enum hostport_kind kind;
    char host[HOSTPORT_HOST_MAX + 1]; /* an IPv6 address without its brackets */
    bool has_port;
    uint16_t port; /* may be 0 */
    bool loopback; /* only this machine can reach it: 127.0.0.0/8, ::1, "localhost" */
};

/* ret is untouched unless it returns HOSTPORT_OK. */
enum hostport_fault hostport_parse(const char *text, size_t length, struct hostport *ret);

#endif
