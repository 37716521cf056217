/* What every example needs: a way out, and a store to play with. */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <holdfast/holdfast.h>

#include <stdio.h>
#include <stdlib.h>

/* Ends the program unless the call succeeded. hf_error() says in words what went wrong. */
#define MUST(call)                                                            \
    do {                                                                      \
        int must_result = (call);                                             \
        if (must_result != HF_OK) {                                           \
            fprintf(stderr, "%s:%d: %s: %s: %s\n", __FILE__, __LINE__, #call, \
                    hf_result_name(must_result), hf_error());                 \
            exit(1);                                                          \
        }                                                                     \
    } while (0)

/* Ends the program unless this is so. */
#define EXPECT(condition)                                                           \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                \
        }                                                                           \
    } while (0)

/* The store is the first argument, as in "file:/var/lib/myjobs"; without one, the default. */
static inline hf_store *example_store(int argc, char **argv)
{
    hf_store *store;

    MUST(hf_open(argc > 1 ? argv[1] : NULL, &store));
    return store;
}

#endif
