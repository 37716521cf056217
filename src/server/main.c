/* main.c: holdfastd. What it was told is config.c's business, what it does serving.c's. */
#include "server/config.h"
#include "server/log.h"
#include "server/server.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    struct config config;
    struct error_text err = {""};
    int status = config_from(argc, argv, &config, &err);

    if (status != CONFIG_DONE) {
        fprintf(stderr, "holdfastd: %s\n", err.text);
        return status;
    }
    if (config_answer(&config, stdout))
        return fflush(stdout) == 0 ? CONFIG_DONE : 74;
    if (config.ask == CONFIG_RESTORE) {
        status = restore_backup(&config);
        config_wipe(&config);
        return status;
    }
    log_open((enum log_level)config.log_level, (enum log_format)config.log_format);
    status = serve(&config);
    config_wipe(&config);
    log_close();
    return status;
}
