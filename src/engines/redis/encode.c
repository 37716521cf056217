/* encode.c: what both stores say to a server about a claim. */
#include "engines/redis/store.h"

static const char *owner_of(const struct engine_claim *claim)
{
    return claim->owner ? claim->owner : "";
}

static void begin(const struct engine_store *store, const struct engine_claim *claim,
                  enum script_id script, bool by_text, size_t arguments, struct resp_writer *writer)
{
    if (claim->once)
        script_write_once(writer, script, by_text, store->prefix, claim->name, claim->lease,
                          arguments);
    else
        script_write(writer, script, by_text, store->prefix, claim->name, claim->lease, arguments);
}

void say_release(const struct engine_store *store, const struct engine_claim *claim, uint64_t token,
                 int64_t remember_ms, bool by_text, struct resp_writer *writer)
{
    begin(store, claim, SCRIPT_RELEASE, by_text, 3, writer);
    resp_write_text(writer, claim->lease);
    if (token > 0)
        resp_write_number(writer, (int64_t)token);
    else
        resp_write_text(writer, "");
    resp_write_number(writer, remember_ms);
}

void say_abandon(const struct engine_store *store, const struct engine_claim *claim,
                 const char *place, int64_t remember_ms, bool by_text, struct resp_writer *writer)
{
    begin(store, claim, SCRIPT_ABANDON, by_text, 3, writer);
    resp_write_text(writer, claim->lease);
    resp_write_text(writer, place);
    resp_write_number(writer, remember_ms);
}

void say_renew(const struct engine_store *store, const struct engine_claim *claim,
               const char *place, bool by_text, struct resp_writer *writer)
{
    begin(store, claim, SCRIPT_RENEW, by_text, claim->once ? 7 : 6, writer);
    resp_write_text(writer, claim->lease);
    resp_write_number(writer, (int64_t)claim->token);
    resp_write_number(writer, claim->ttl_ms);
    resp_write_number(writer, claim->delay_ms);
    resp_write_text(writer, owner_of(claim));
    resp_write_text(writer, place);
    if (claim->once)
        resp_write_number(writer, claim->death_ms);
}

void say_claim(const struct engine_store *store, const struct engine_claim *claim,
               const char *place, bool by_text, struct resp_writer *writer)
{
    begin(store, claim, SCRIPT_ONCE_CLAIM, by_text, 6, writer);
    resp_write_text(writer, claim->lease);
    resp_write_number(writer, claim->ttl_ms);
    resp_write_text(writer, owner_of(claim));
    resp_write_text(writer, place);
    resp_write_number(writer, claim->no_heir);
    resp_write_number(writer, claim->death_ms);
}
