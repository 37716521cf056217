/* loop.h: the whole server, from its start to a clean end. */
#ifndef SERVER_LOOP_H
#define SERVER_LOOP_H

struct config;

/* Serves until told to stop by SIGTERM or SIGINT; returns an exit status. SIGHUP has files read again, into config. */
int serve(struct config *config);

#endif
