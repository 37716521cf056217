/* main.c: holdfastd. What it was told is config.c's business, what it does loop.c's. */
#include "base/modules.h"
#include "journal/directory.h"
#include "server/config.h"
#include "server/log.h"
#include "server/loop.h"
#include "server/restore.h"
#include "server/tls_config.h"

#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct config config;
    struct error_text err = {""};
    int status;

    modules_find_beside("/src/server/holdfastd");
    status = config_from(argc, argv, &config, &err);
    if (status != CONFIG_DONE) {
        fprintf(stderr, "holdfastd: %s\n", err.text);
        return status;
    }
    if (config_answer(&config, stdout)) {
        status = fflush(stdout) == 0 ? CONFIG_DONE : 74;
        if (config.ask == CONFIG_CHECK && config.password.is_short)
            fprintf(stderr,
                    "holdfastd: the password of clients (%s) is short, and can be "
                    "guessed: " SECRET_ADVICE "\n",
                    config.password_file);
        /* No failure: settings may be checked before a disk is mounted. */
        if (config.ask == CONFIG_CHECK && config_check_place(&config, &err) != HF_OK)
            fprintf(stderr, "holdfastd: the settings are right, but a start would fail now: %s\n",
                    err.text);
        if (config.ask == CONFIG_CHECK && config.peer_context &&
            tls_config_check_own(&config, config.peer_context, &err) != HF_OK) {
            fprintf(stderr, "holdfastd: other nodes would refuse this one: %s\n", err.text);
            status = CONFIG_WRONG;
        }
        return status;
    }
    /* A user's state is private; below /var/lib others may look, as systemd makes it. What could not be made is told when it
     * is opened. */
    if (config.data_is_default && config.ask != CONFIG_RESTORE)
        directory_make_parents(config.data, geteuid() == 0 ? 0755 : 0700, &err);
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
