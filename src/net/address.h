/* address.h: where a server is and how to be let in. */
#ifndef NET_ADDRESS_H
#define NET_ADDRESS_H

#include "base/hostport.h"
#include "base/password.h"
#include "base/url.h"

#include <stdbool.h>

#define ADDRESS_HOST_MAX HOSTPORT_HOST_MAX
#define ADDRESS_PATH_MAX 107 /* sun_path */
#define ADDRESS_FILE_MAX 1023
#define ADDRESS_TEXT_MAX 288

struct address {
    char host[ADDRESS_HOST_MAX + 1]; /* name or number, an IPv6 one without its brackets */
    char port[6];
    char path[ADDRESS_PATH_MAX + 1]; /* a unix socket; "" for TCP */
    char shown[ADDRESS_TEXT_MAX];    /* "host:port" or the path, for people; never a password */
};

/* How to be let in, the same for all servers of a store. Wiped by access_wipe. */
struct access {
    char user[PASSWORD_MAX + 1]; /* "": the default user */
    char password[PASSWORD_MAX + 1];
    char password_file[ADDRESS_FILE_MAX + 1]; /* that it is read again from; "": it is not */
    bool tls;
    /* PEM files; "": the system's authorities; no certificate of our own. */
    char ca_file[ADDRESS_FILE_MAX + 1];
    char cert_file[ADDRESS_FILE_MAX + 1], key_file[ADDRESS_FILE_MAX + 1];
    char
        crl_file[ADDRESS_FILE_MAX + 1]; /* which certificates were revoked; "": that is not asked */
};

/* What follows the scheme of a URL: "//userinfo@hosts/path", borrowed from it. */
struct address_parts {
    const char *userinfo, *hosts; /* userinfo: NULL if there is no '@' */
    size_t userinfo_length, hosts_length;
    const char *path; /* after the hosts, with its '/', or "" */
};

int address_split(const char *rest, struct address_parts *ret_parts, struct error_text *err);
/* "host", "host:port", "[::1]:port", or a percent-encoded path that begins with '/'. */
int address_parse(const char *text, size_t length, const char *default_port,
                  struct address *ret_address, struct error_text *err);
/* As they are written: one server may have several names. */
bool address_same(const struct address *a, const struct address *b);
/* The options password-file, ca-file, cert-file, key-file, the part of the URL before '@'
 * (userinfo, still encoded, or NULL), and HOLDFAST_PASSWORD for a password given nowhere else. */
int access_read(struct url *url, const char *userinfo, size_t userinfo_length,
                struct access *ret_access, struct error_text *err);
/* The option crl-file, of stores whose TLS is ours; after access_read, and after it is known whether TLS is wanted. secure: the scheme that wants it, for
 * messages: none of the files is of use without. */
int access_read_revocations(struct url *url, const char *secure, struct access *access,
                            struct error_text *err);
/* The password as its file says now: it may have been exchanged since. Returns false, and leaves `password` as it is, if there is no
 * such file, or it cannot be used: it may be about to be written. Not for a file that can be read only once, such as a pipe. */
bool access_password(const struct access *access, char password[PASSWORD_MAX + 1]);
/* A server has refused the password: adds to the words where it came from, if that is a file. */
void access_add_origin(const struct access *access, struct error_text *err);
/* A server wants a password, and none was given: adds to the words that the one of client.conf was not used. conf: its path, or NULL if there
 * is none. */
void access_add_unused(const char *conf, struct error_text *err);
void access_wipe(struct access *access);

#endif
