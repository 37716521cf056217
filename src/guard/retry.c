/* retry.c: trying again, but not for ever, and not all at once.
 *
 * Full jitter: the wait is anything between nothing and a span that doubles. Those who lost the same
 * race come back spread over the whole span, which gets all of them through with the fewest attempts. */
#include "base/clock.h"
#include "base/failure.h"
#include "base/random.h"

#include <errno.h>
#include <holdfast/guard.h>
#include <time.h>

#define NS_PER_MS INT64_C(1000000)

static int check(const hf_retry *retry, struct error_text *err)
{
    if (!retry || retry->size != sizeof *retry)
        return error_set(err, HF_EINVAL, "hf_retry: initialise it with HF_RETRY_INIT");
    if (retry->attempts_max < 1 || retry->attempts_max > HF_RETRY_ATTEMPTS_MAX)
        return error_set(err, HF_EINVAL, "%u attempts: must be from 1 to %d", retry->attempts_max,
                         HF_RETRY_ATTEMPTS_MAX);
    if (retry->first_ms < 1 || retry->wait_max_ms < retry->first_ms ||
        retry->wait_max_ms > HF_DURATION_MAX_MS || retry->total_max_ms < 1 ||
        retry->total_max_ms > HF_DURATION_MAX_MS)
        return error_set(err, HF_EINVAL,
                         "hf_retry: waits must be from 1 ms to a year, and the first not longer "
                         "than the longest");
    return HF_OK;
}

static int64_t span_ms(const hf_retry *retry)
{
    int64_t span = retry->first_ms;

    for (uint32_t i = 0; i < retry->waits && span < retry->wait_max_ms; i++)
        span *= 2;
    return span < retry->wait_max_ms ? span : retry->wait_max_ms;
}

static void sleep_ns(int64_t ns)
{
    struct timespec until = clock_monotonic_in(ns / NS_PER_MS);

    until.tv_nsec += (long)(ns % NS_PER_MS);
    if (until.tv_nsec >= 1000 * NS_PER_MS) {
        until.tv_nsec -= (long)(1000 * NS_PER_MS);
        until.tv_sec++;
    }
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
}

static int wait_once(hf_retry *retry, struct error_text *err)
{
    int64_t now_ms = clock_boot_ms(), wait_ns, left_ns;

    if (retry->waits == 0)
        retry->until_ms = clock_after(now_ms, retry->total_max_ms);
    if (retry->waits + 1 >= retry->attempts_max)
        return error_set(err, HF_EBUSY,
                         "given up after %u attempts: somebody else was always first",
                         retry->attempts_max);
    if (now_ms >= retry->until_ms)
        return error_set(err, HF_EBUSY, "given up after %lld ms: somebody else was always first",
                         (long long)retry->total_max_ms);
    wait_ns = (int64_t)random_below((uint64_t)(span_ms(retry) * NS_PER_MS) + 1);
    left_ns = (retry->until_ms - now_ms) * NS_PER_MS;
    sleep_ns(wait_ns < left_ns ? wait_ns : left_ns);
    retry->waits++;
    return HF_OK;
}

int hf_retry_wait(hf_retry *retry)
{
    struct error_text err = {""};
    int result = check(retry, &err);

    if (result == HF_OK)
        result = wait_once(retry, &err);
    return failure_keep(result, &err);
}
