/* once_show.h: what is known of a key, in words or in JSON. */
#ifndef CLI_ONCE_SHOW_H
#define CLI_ONCE_SHOW_H

#include "cli/cli.h"

/* Prints it. The exit status. */
int once_show(struct cli *cli, const char *key);

#endif
