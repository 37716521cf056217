/* joburl.h: the store's URL as the job is to have it.
 *
 * A job may go to another directory, or have another HOME, and must not lock in another store there. */
#ifndef CLI_JOBURL_H
#define CLI_JOBURL_H

#include "base/error.h"

/* The URL in effect, without password, and with absolute paths: of the file store's directory, and of the files that its
 * options name. One that has no relative path is left as it was written. HF_EINVAL if it gets too long. */
int joburl(hf_store *store, char ret_url[HF_URL_MAX + 1], struct error_text *err);

#endif
