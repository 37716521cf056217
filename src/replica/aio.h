/* aio.h: keeps the loop from waiting for io_destroy(2). */
#ifndef REPLICA_AIO_H
#define REPLICA_AIO_H

/* Does nothing but get this file into the program. */
void aio_link(void);

#endif
