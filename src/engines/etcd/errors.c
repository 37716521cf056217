/* errors.c: what errors of the gateway mean. They are JSON with a code of gRPC and a message. */
#include "engines/etcd/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum grpc_code {
    GRPC_CANCELED = 1,
    GRPC_UNKNOWN = 2,
    GRPC_DEADLINE_EXCEEDED = 4,
    GRPC_RESOURCE_EXHAUSTED = 8,
    GRPC_ABORTED = 10,
    GRPC_INTERNAL = 13,
    GRPC_UNAVAILABLE = 14,
    GRPC_UNAUTHENTICATED = 16
};

/* Of those from 500 on, what no proxy says whose servers are down. */
#define HTTP_NOT_IMPLEMENTED 501
#define HTTP_NO_VERSION 505

/* By the words, where a code has several meanings. */
static const struct refusal {
    const char *message;
    enum verdict verdict;
    int code;
    const char *words;
} refusals[] = {
    {"no leader", VERDICT_ELSEWHERE, 0, "it has no leader (a majority of the servers is needed)"},
    {"not capable", VERDICT_ELSEWHERE, 0, "it does not serve yet"},
    {"too many requests", VERDICT_ELSEWHERE, 0, "it has too many requests to do"},
    {"raft proposal dropped", VERDICT_ELSEWHERE, 0, "its leader is being changed"},
    {"server stopped", VERDICT_UNSURE, 0, "it is being stopped"},
    {"database space exceeded", VERDICT_FINAL, HF_EIO,
     "its space is used up (alarm NOSPACE): compact, defragment, then 'etcdctl alarm disarm'"},
    {"corrupt", VERDICT_FINAL, HF_EIO, "its data is damaged (alarm CORRUPT)"},
    {"invalid auth token", VERDICT_TOKEN, 0, "our authentication has run out"},
    {"revision of auth store is old", VERDICT_TOKEN, 0, "our authentication is out of date"},
    {"authentication is not enabled", VERDICT_FINAL, HF_ENOTSUP, "it does not ask for a user"},
    {"authentication failed", VERDICT_FINAL, HF_EREFUSED,
     "it does not accept this user and password"},
    {"user name is empty", VERDICT_FINAL, HF_EREFUSED,
     "it asks for a user and password: etcd://USER:PASSWORD@..."},
    {"permission denied", VERDICT_FINAL, HF_EREFUSED,
     "this user may not read and write the keys of this prefix"},
};

void etcd_error_message(const json_t *error, char *ret_text, size_t size)
{
    const char *message = json_string_value(json_object_get(error, "message"));

    if (!message)
        message = json_string_value(json_object_get(error, "error"));
    snprintf(ret_text, size, "%s", message ? message : "");
}

/* What is not a word about the request itself says nothing about whether it was done. */
static enum verdict by_code(int64_t code, int *ret_code)
{
    *ret_code = HF_EREFUSED;
    switch (code) {
    case GRPC_CANCELED: /* the gateway's own connection ends: the server is being stopped */
    case GRPC_UNKNOWN:  /* an error that etcd has no code for */
    case GRPC_DEADLINE_EXCEEDED:  /* nobody but the server sets one */
    case GRPC_RESOURCE_EXHAUSTED: /* also of an answer that is too large */
    case GRPC_ABORTED:
    case GRPC_INTERNAL:    /* the connection between gateway and server broke */
    case GRPC_UNAVAILABLE: /* a leader that changed, a request that timed out */
        return VERDICT_UNSURE;
    case GRPC_UNAUTHENTICATED:
        return VERDICT_TOKEN;
    default:
        return VERDICT_FINAL;
    }
}

enum verdict etcd_error_read(const struct endpoint *at, long status, const char *bytes, size_t size,
                             const struct access *access, int *ret_code, struct error_text *err)
{
    json_t *error = bytes ? json_loadb(bytes, size, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
    char message[256];
    enum verdict verdict;
    int64_t code = 0;

    etcd_error_message(error, message, sizeof message);
    if (!json_number(error, "code", &code))
        code = 0;
    json_decref(error);
    if (!message[0]) {
        bool of_proxy =
            status >= 500 && status != HTTP_NOT_IMPLEMENTED && status != HTTP_NO_VERSION;

        *ret_code =
            error_set(err, HF_EREFUSED, "%s: HTTP status %ld: %s", at->address.shown, status,
                      of_proxy ? "etcd does not answer so: is there a proxy before it?"
                               : "this is not the gateway of etcd 3.4 or later");
        return of_proxy ? VERDICT_FOREIGN : VERDICT_FINAL;
    }
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        if (!strstr(message, refusals[i].message))
            continue;
        error_write(err, "%s: %s", at->address.shown, refusals[i].words);
        *ret_code = refusals[i].code;
        if (strcmp(refusals[i].message, "authentication failed") == 0)
            access_add_origin(access, err);
        return refusals[i].verdict;
    }
    error_write(err, "%s: %s", at->address.shown, message);
    verdict = by_code(code, ret_code);
    return verdict;
}

/* ---- versions -------------------------------------------------------------------------------- */

/* "3.4.23": three numbers; what may come behind them does not matter. */
static bool read_version(const char *text, long ret_numbers[3])
{
    for (int i = 0; i < 3; i++) {
        char *end;

        ret_numbers[i] = strtol(text, &end, 10);
        if (end == text || (i < 2 && *end != '.'))
            return false;
        text = end + 1;
    }
    return true;
}

bool etcd_error_version(const char *version, char *ret_words, size_t size)
{
    long numbers[3], minor, patch;

    if (!read_version(version, numbers) || numbers[0] != 3)
        return false;
    minor = numbers[1];
    patch = numbers[2];
    if (minor > 5 || (minor == 5 && patch >= 14) || (minor == 4 && patch >= 32))
        return false;
    snprintf(ret_words, size,
             "after a crash during a compaction its revisions, and so tokens, may go back (etcd "
             "17780); 3.4.32 and 3.5.14 have that mended");
    return true;
}
