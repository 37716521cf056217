/* zeros.h: segments of the log that can be written without waiting. */
#ifndef REPLICA_ZEROS_H
#define REPLICA_ZEROS_H

/* Does nothing but get this file into the program. */
void zeros_link(void);

#endif
