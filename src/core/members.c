/* members.c: where clients find each member of the cluster. In the order of their ids. */
#include "core/inside.h"

#include <string.h>

/* The first whose id is not below this one. */
static uint32_t place_of(const struct core *core, uint64_t id)
{
    uint32_t at = 0;

    while (at < core->member_count && core->members[at].id < id)
        at++;
    return at;
}

static bool is_at(const struct core *core, uint32_t at, uint64_t id)
{
    return at < core->member_count && core->members[at].id == id;
}

/* One that would be too many is not kept: it can do without. */
bool member_set(struct core *core, uint64_t id, struct core_text address)
{
    uint32_t at = place_of(core, id);
    struct member *member = &core->members[at];
    size_t behind = (core->member_count - at) * sizeof *member;

    core->members_version++;
    if (address.size == 0) {
        if (!is_at(core, at, id))
            return false;
        memmove(member, member + 1, behind - sizeof *member);
        core->member_count--;
        return true;
    }
    if (!is_at(core, at, id)) {
        if (core->member_count == CORE_MEMBERS_MAX)
            return false;
        memmove(member + 1, member, behind);
        core->member_count++;
    }
    member->id = id;
    member->size = (uint32_t)address.size;
    memcpy(member->address, address.bytes, address.size);
    return true;
}

struct core_text core_member(const struct core *core, uint64_t id)
{
    uint32_t at = place_of(core, id);

    if (!is_at(core, at, id))
        return (struct core_text){"", 0};
    return (struct core_text){core->members[at].address, core->members[at].size};
}

uint64_t core_member_id(const struct core *core, unsigned n)
{
    return n < core->member_count ? core->members[n].id : 0;
}

uint64_t core_members_version(const struct core *core)
{
    return core->members_version;
}
