/* test.c: the engine that is made for tests (tests/lib/engine), in what it may be and do. */
#include "suite.h"

const struct store_kind test_kinds[] = {
    {.name = "test", .url = "test:%s/store", .shows_waiters = true},
    {.name = "test-poll", .url = "test:%s/store?push=poll", .shows_waiters = true},
    {.name = "test-coarse",
     .url = "test:%s/store?ttl-min=2000",
     .shows_waiters = true,
     .short_ttl_ms = 2000,
     .time_max_s = TIME_MAX_NETWORK_S},
    {.name = "testweak", .url = "testweak:%s/store", .shows_waiters = false},
    {.name = "testweak-mute", .url = "testweak:%s/store?push=no", .shows_waiters = false},
    {0},
};
