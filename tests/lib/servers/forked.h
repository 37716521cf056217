/* forked.h: a forked child that hangs says where. */
#ifndef TESTS_FORKED_H
#define TESTS_FORKED_H

/* ThreadSanitizer cannot live with new threads in the child of a process with threads, and AddressSanitizer's
 * memory may be locked there for ever, by a thread that was not copied. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define CHILD_IS_WHOLE false
#else
#define CHILD_IS_WHOLE true
#endif

/* For the child, first of all: if it has not ended after so many seconds, it prints the step it is in and its stack and exits
 * with 1; or with 0 if it is AddressSanitizer's own memory that it hangs in. */
void forked_end_after(unsigned seconds);
/* What the child does now. */
void forked_step(const char *step);

#endif
