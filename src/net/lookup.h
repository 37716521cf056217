/* lookup.h: the addresses behind a host's name. A name server that does not answer takes ten seconds and more: a thread of its own waits for it,
 * for all who ask for the same name meanwhile, and none of them has to. */
#ifndef NET_LOOKUP_H
#define NET_LOOKUP_H

#include "net/address.h"

#define LOOKUP_AGAIN 1

struct addrinfo;
struct lookup;

/* address: borrowed until lookup_end. HF_ENOMEM: no memory, descriptor or thread. */
int lookup_begin(const struct address *address, struct lookup **ret_lookup, struct error_text *err);
/* Readable when it is over. */
int lookup_fd(const struct lookup *lookup);
/* LOOKUP_AGAIN: not yet. HF_OK: at least one, there until lookup_end. HF_EUNREACH: there is none. */
int lookup_result(const struct lookup *lookup, const struct addrinfo **ret_found,
                  struct error_text *err);
/* Does not wait, though the thread may. NULL is fine. */
void lookup_end(struct lookup *lookup);
/* In the child of a fork, instead: closes the descriptor, and nothing else. Async-signal-safe. NULL is fine. */
void lookup_after_fork(struct lookup *lookup);

#endif
