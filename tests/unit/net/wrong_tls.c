/* A TLS module of another version: it must be refused before anything of it is called. */
#include "net/tls.h"

static const struct tls_provider provider = {.abi = TLS_ABI + 1};

HF_API tls_module_fn holdfast_tls;

const struct tls_provider *holdfast_tls(void)
{
    return &provider;
}
