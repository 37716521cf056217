/* server_url.c: one server of a URL that names several.
 *
 *     holdfast://user:password@h1:7420,h2:7420?timeout=1s   ──▶   holdfast://user:password@h2:7420?timeout=1s */
#include "client/client.h"

#include <stdio.h>
#include <string.h>

bool cluster_server_url(const hf_store *store, size_t index, char ret_url[HF_URL_MAX + 1])
{
    const char *url = store->full_url, *hosts = url ? strstr(url, "://") : NULL, *end, *at;

    if (!hosts)
        return false;
    hosts += 3;
    end = hosts + strcspn(hosts, "/?");
    at = memrchr(hosts, '@', (size_t)(end - hosts));
    if (at)
        hosts = at + 1;
    if (!memchr(hosts, ',', (size_t)(end - hosts)))
        return false; /* it is the only one */
    for (const char *host = hosts; host <= end;) {
        const char *comma = memchr(host, ',', (size_t)(end - host));
        size_t length = (size_t)((comma ? comma : end) - host);

        if (index-- == 0) {
            snprintf(ret_url, HF_URL_MAX + 1, "%.*s%.*s%s", (int)(hosts - url), url, (int)length,
                     host, end);
            return true;
        }
        host += length + 1;
    }
    return false;
}
