/* hostports.h: nasty inputs for whoever reads "host:port". There is one reader (base/hostport.h), and each room that uses it says in its own
 * words what is wrong: here is what all of them must take and refuse. Settings, peers and URLs of stores go through it in the tests of their
 * rooms. */
#ifndef TESTS_BASE_HOSTPORTS_H
#define TESTS_BASE_HOSTPORTS_H

#include <stdbool.h>
#include <stddef.h>

struct hostport_case {
    const char *text;
    const char *host; /* NULL: nobody takes it */
    int port;         /* -1: none is said */
    bool loopback;
};

static const struct hostport_case hostport_cases[] = {
    /* Numbers. What resolvers take for one in an older way of writing is none. */
    {"127.0.0.1:7420", "127.0.0.1", 7420, true},
    {"127.255.3.9:1", "127.255.3.9", 1, true},
    {"128.0.0.1:1", "128.0.0.1", 1, false},
    {"127.1", NULL, -1, false},
    {"127.1:7420", NULL, -1, false},
    {"1.2.3:1", NULL, -1, false},
    {"1.2.3.256:1", NULL, -1, false},
    {"1.2.3.4.5:1", NULL, -1, false},
    {"1.2.3.4.:1", NULL, -1, false},
    {"0177.0.0.1:1", NULL, -1, false},
    {"127.0.0.01:1", NULL, -1, false},
    {"0x7f.1:1", NULL, -1, false},
    {"0x7f000001:1", NULL, -1, false},
    {"2130706433:1", NULL, -1, false},
    {"7420", NULL, -1, false},
    {".:1", NULL, -1, false},
    /* IPv6 goes in brackets, and nothing else does. */
    {"[::1]", "::1", -1, true},
    {"[::1]:1", "::1", 1, true},
    {"[0:0::0:1]:1", "0:0::0:1", 1, true},
    {"[::ffff:127.0.0.1]:1", "::ffff:127.0.0.1", 1, false},
    {"[2001:db8::7]:65535", "2001:db8::7", 65535, false},
    {"::1", NULL, -1, false},
    {"::1:1", NULL, -1, false},
    {"[::1", NULL, -1, false},
    {"[::1:1", NULL, -1, false},
    {"::1]:1", NULL, -1, false},
    {"[::1]1", NULL, -1, false},
    {"[::1]x:1", NULL, -1, false},
    {"[::1]:", NULL, -1, false},
    {"[[::1]]:1", NULL, -1, false},
    {"[]", NULL, -1, false},
    {"[]:1", NULL, -1, false},
    {"[localhost]:1", NULL, -1, false},
    {"[127.0.0.1]:1", NULL, -1, false},
    {"[::1%lo]:1", NULL, -1, false},
    {"[::g]:1", NULL, -1, false},
    {"[:::]:1", NULL, -1, false},
    /* Names. */
    {"localhost:1", "localhost", 1, true},
    {"LocalHost:1", "LocalHost", 1, true},
    {"localhost", "localhost", -1, true},
    {"localhost.example:1", "localhost.example", 1, false},
    {"1.example.:1", "1.example.", 1, false},
    {"A-b_c.9x:1", "A-b_c.9x", 1, false},
    {"", NULL, -1, false},
    {":", NULL, -1, false},
    {":1", NULL, -1, false},
    {"a..b:1", NULL, -1, false},
    {"a..:1", NULL, -1, false},
    {".a:1", NULL, -1, false},
    {"-a:1", NULL, -1, false},
    {"a b:1", NULL, -1, false},
    {" a:1", NULL, -1, false},
    {"a :1", NULL, -1, false},
    {"a\t:1", NULL, -1, false},
    {"a\n:1", NULL, -1, false},
    {"a\x7f:1", NULL, -1, false},
    {"a@b:1", NULL, -1, false},
    {"a/b:1", NULL, -1, false},
    {"a%41:1", NULL, -1, false},
    {"a=b:1", NULL, -1, false},
    {"*:1", NULL, -1, false},
    {"a:b]c", NULL, -1, false},
    {"a]b:1", NULL, -1, false},
    {"h\xc3\xb6st:1", NULL, -1, false},
    {"h\xff:1", NULL, -1, false},
    /* Ports: one to five digits. 0 is one to listen at, and none to reach. */
    {"a:01", "a", 1, false},
    {"a:00080", "a", 80, false},
    {"a:65535", "a", 65535, false},
    {"a:0", "a", 0, false},
    {"a:00000", "a", 0, false},
    {"a:", NULL, -1, false},
    {"a:000001", NULL, -1, false},
    {"a:65536", NULL, -1, false},
    {"a:99999", NULL, -1, false},
    {"a:4294967297", NULL, -1, false},
    {"a:18446744073709551617", NULL, -1, false},
    {"a:+1", NULL, -1, false},
    {"a:-1", NULL, -1, false},
    {"a: 1", NULL, -1, false},
    {"a:1 ", NULL, -1, false},
    {"a:1\t", NULL, -1, false},
    {"a:1\n", NULL, -1, false},
    {"a:0x1", NULL, -1, false},
    {"a:1.", NULL, -1, false},
    {"a:1x", NULL, -1, false},
    {"a:x", NULL, -1, false},
    {"a:1:", NULL, -1, false},
    {"a:1:2", NULL, -1, false},
    {"a::1", NULL, -1, false},
};
#define HOSTPORT_CASES (sizeof hostport_cases / sizeof *hostport_cases)

#endif
