/* samples.h: values as they come over the wire, good ones and bad ones. */
#ifndef TESTS_RESP_SAMPLES_H
#define TESTS_RESP_SAMPLES_H

#include "tools.h"

static const struct good {
    const char *wire;
    size_t size, parts; /* parts: what counts against nodes_max */
    const char *shown;
} good[] = {
    {WIRE("+OK\r\n"), 1, "+OK"},
    {WIRE("+\r\n"), 1, "+"},
    {WIRE("+a\0b\r\n"), 1, "+a\\00b"},
    {WIRE("-ERR no such thing\r\n"), 1, "-ERR no such thing"},
    {WIRE(":42\r\n"), 1, ":42"},
    {WIRE(":+7\r\n"), 1, ":7"},
    {WIRE(":-0\r\n"), 1, ":0"},
    {WIRE(":9223372036854775807\r\n"), 1, ":9223372036854775807"},
    {WIRE(":-9223372036854775808\r\n"), 1, ":-9223372036854775808"},
    {WIRE("$5\r\nhello\r\n"), 1, "$hello"},
    {WIRE("$0\r\n\r\n"), 1, "$"},
    {WIRE("$9\r\na\r\nb\n\0$1\r\r\n"), 1, "$a\\0d\\0ab\\0a\\00$1\\0d"},
    {WIRE("$-1\r\n"), 1, "_"},
    {WIRE("*-1\r\n"), 1, "_"},
    {WIRE("*0\r\n"), 1, "*0"},
    {WIRE("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\n\r\n\r\n"), 4, "*3 $SET $k $\\0d\\0a"},
    {WIRE("*4\r\n$-1\r\n:1\r\n*-1\r\n*0\r\n"), 5, "*4 _ :1 _ *0"},
    {WIRE("*2\r\n*2\r\n:1\r\n+a\r\n*1\r\n$1\r\nb\r\n"), 6, "*2 *2 :1 +a *1 $b"},
    {WIRE("*3\r\n*0\r\n*1\r\n*0\r\n:5\r\n"), 5, "*3 *0 *1 *0 :5"},
    {WIRE("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n"), 9,
     "*1 *1 *1 *1 *1 *1 *1 *1 :1"},
    {WIRE("_\r\n"), 1, "_"},
    {WIRE("#t\r\n"), 1, "#1"},
    {WIRE("#f\r\n"), 1, "#0"},
    {WIRE(",3.14\r\n"), 1, ",3.14"},
    {WIRE(",-inf\r\n"), 1, ",-inf"},
    {WIRE(",nan\r\n"), 1, ",nan"},
    {WIRE(",1e-7\r\n"), 1, ",1e-7"},
    {WIRE("(-3492890328409238509324850943850943825024385\r\n"), 1,
     "(-3492890328409238509324850943850943825024385"},
    {WIRE("!21\r\nSYNTAX invalid syntax\r\n"), 1, "-SYNTAX invalid syntax"},
    {WIRE("=9\r\ntxt:hello\r\n"), 1, "$hello"},
    {WIRE("=4\r\nmkd:\r\n"), 1, "$"},
    {WIRE("~2\r\n:1\r\n#t\r\n"), 3, "~2 :1 #1"},
    {WIRE("%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n_\r\n"), 6, "%4 +a :1 +b *1 _"},
    {WIRE("%0\r\n"), 1, "%0"},
    {WIRE(">2\r\n+message\r\n$2\r\nhi\r\n"), 3, ">2 +message $hi"},
    {WIRE(">0\r\n"), 1, ">0"},
    {WIRE("|1\r\n+ttl\r\n:9\r\n:5\r\n"), 4, ":5"},
    {WIRE("|0\r\n|0\r\n:5\r\n"), 3, ":5"},
    {WIRE("|1\r\n+a\r\n:9\r\n>1\r\n+x\r\n"), 5, ">1 +x"},
    {WIRE("*2\r\n+a\r\n|1\r\n*1\r\n+k\r\n|1\r\n:1\r\n:2\r\n:3\r\n$1\r\nb\r\n"), 10, "*2 +a $b"},
};

/* Each list ends with NULL. A NUL within the bytes is written as '@', which RESP has no use for. */
static const struct bad {
    const char *words; /* of the message */
    const char *wires[16];
} bad[] = {
    /* No need to wait for the rest of these. */
    {"not RESP: no value begins with byte 0x50", {"P"}},
    {"not RESP: no value begins with byte 0x00", {"@"}},
    {"not RESP: no value begins with byte 0xff", {"\xff"}},
    {"not RESP", {"\n", "\r\n", " ", "*2\r\n:1\r\nPING", ".\r\n", ";4\r\n", "*1\r\n\r\n"}},
    {"does not end with CR LF", {"+OK\n", "+\n", "+OK\rx\n", "$5\nhello\r\n", "_\n"}},
    {"or has a CR within", {"+a\rb\r\n", "+a\r\r\n", "+\r\r\n", "$5\r\r\n"}},
    {"a string of another length than it said",
     {"$5\r\nhello!\r", "$5\r\nhello\r\r", "$5\r\nhello\n\n", "$5\r\nhe\r\n+OK\r\n",
      "$0\r\n+\r\n"}},
    {"a string with a malformed length",
     {"$\r\n", "$-\r\n", "$-2\r\n", "$-0\r\n", "$-01\r\n", "$-1 \r\n", "$+5\r\n", "$ 5\r\n",
      "$5 \r\n", "$0x5\r\n", "$5@\r\n", "$9223372036854775808\r\n", "$18446744073709551617\r\n"}},
    {"an array with a malformed length",
     {"*\r\n", "*-2\r\n", "*+1\r\n", "*1.5\r\n", "*18446744073709551617\r\n"}},
    {"an error with a malformed length", {"!-1\r\n"}},
    {"a verbatim string with a malformed length", {"=-1\r\n"}},
    {"a set with a malformed length", {"~-1\r\n"}},
    {"a map with a malformed length", {"%-1\r\n"}},
    {"a push with a malformed length", {">-1\r\n"}},
    {"an attribute with a malformed length", {"|-1\r\n"}},
    {"an array of 4294967297 items, more than the 1000000 allowed", {"*4294967297\r\n"}},
    {"a map of 18446744073709551614 items, more than", {"%9223372036854775807\r\n"}},
    {"a map of 9223372036854775808 items, more than", {"%4611686018427387904\r\n"}},
    {"a map of 4294967296 items, more than", {"%2147483648\r\n"}},
    {"an attribute of 18446744073709551614 items", {"|9223372036854775807\r\n"}},
    {"in pieces of unknown number", {"$?\r\n", "*?\r\n", "%?\r\n", "~?\r\n"}},
    {"an integer that is malformed",
     {":\r\n", ":-\r\n", ":--1\r\n", ":1a\r\n", ": 1\r\n", ":9223372036854775808\r\n",
      ":-9223372036854775809\r\n", ":99999999999999999999\r\n"}},
    {"a boolean that is malformed", {"#\r\n", "#x\r\n", "#tt\r\n", "#T\r\n"}},
    {"a nil that is malformed", {"_x\r\n"}},
    {"a double that is malformed", {",\r\n", ",1 5\r\n", ",1@\r\n", ",1\x1b\r\n"}},
    {"a big number that is malformed", {"(\r\n", "(1.5\r\n"}},
    {"without its format", {"=3\r\ntxt\r\n", "=0\r\n\r\n+:\r\n", "=9\r\ntxt-hello\r\n"}},
    {"a push within another value", {"*1\r\n>", "|1\r\n+a\r\n>0\r\n"}},
    {"nested more than 8 deep",
     {"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*0\r\n",
      "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n|0\r\n"}},
};

#endif
