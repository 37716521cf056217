/* check_tokens.c: a token goes to one lease. The same lease gets the same one, however often it asks. Who asks after somebody was
 * told a token gets a greater one, whatever the name. */
#include "sim/check.h"

uint64_t tokens_floor(const struct check_tokens *tokens)
{
    return tokens->highest;
}

void tokens_told(struct check_tokens *tokens, struct verdict *verdict, uint64_t lease,
                 uint64_t token, uint64_t floor)
{
    uint64_t *had = map_at(&tokens->of_lease, lease), *owner;

    if (token == 0) {
        verdict_wrong(verdict, "lease %llu is granted without a token", (unsigned long long)lease);
        return;
    }
    if (*had && *had != token)
        verdict_wrong(verdict, "same lease, other token: lease %llu has had %llu and gets %llu",
                      (unsigned long long)lease, (unsigned long long)*had,
                      (unsigned long long)token);
    owner = map_at(&tokens->lease_of, token);
    if (*owner && *owner != lease)
        verdict_wrong(verdict, "token %llu went to lease %llu and goes to lease %llu",
                      (unsigned long long)token, (unsigned long long)*owner,
                      (unsigned long long)lease);
    if (token <= floor)
        verdict_wrong(verdict,
                      "tokens do not grow: lease %llu gets %llu, and %llu was given before it "
                      "asked",
                      (unsigned long long)lease, (unsigned long long)token,
                      (unsigned long long)floor);
    if (map_find(&tokens->ended, lease))
        verdict_wrong(verdict, "lease %llu has ended, and gets token %llu",
                      (unsigned long long)lease, (unsigned long long)token);
    *had = token;
    *owner = lease;
    if (token > tokens->highest)
        tokens->highest = token;
}

void tokens_raised(struct check_tokens *tokens, struct verdict *verdict, uint64_t asked,
                   uint64_t told)
{
    if (told < asked)
        verdict_wrong(verdict, "the floor is %llu, and was to be %llu", (unsigned long long)told,
                      (unsigned long long)asked);
    if (told > tokens->highest)
        tokens->highest = told;
}

void tokens_ended(struct check_tokens *tokens, uint64_t lease)
{
    *map_at(&tokens->ended, lease) = 1;
}

void tokens_free(struct check_tokens *tokens)
{
    map_free(&tokens->of_lease);
    map_free(&tokens->lease_of);
    map_free(&tokens->ended);
}
