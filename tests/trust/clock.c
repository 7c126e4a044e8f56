/* A clock that is wrong: CLOCK_OFFSET seconds at first, and CLOCK_STEP more after CLOCK_CALLS calls. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static atomic_long calls;

static long number(const char *name) {
    const char *text = getenv(name);
    return text ? atol(text) : 0;
}

static long wrong(void) {
    long after = number("CLOCK_CALLS");
    long step = atomic_fetch_add(&calls, 1) >= after ? number("CLOCK_STEP") : 0;
    return number("CLOCK_OFFSET") + step;
}

int clock_gettime(clockid_t clock, struct timespec *found) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, found);
    if (!failed && clock == CLOCK_REALTIME) found->tv_sec += wrong();
    return failed;
}

int gettimeofday(struct timeval *restrict found, void *restrict zone) {
    int (*real)(struct timeval *, void *) = dlsym(RTLD_NEXT, "gettimeofday");
    int failed = real(found, zone);
    if (!failed) found->tv_sec += wrong();
    return failed;
}

time_t time(time_t *kept) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (kept) *kept = found.tv_sec;
    return found.tv_sec;
}
