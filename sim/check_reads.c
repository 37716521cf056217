/* check_reads.c: a read that began after a grant was acknowledged sees it, as long as its holder may believe in it; and it sees nothing that had
 * ended before it began. */
#include "sim/check.h"

/* He was told before the read began, believes in it still, and no break may have taken it from him. */
static bool surely_holds(const struct check_holders *holders, const struct check_ends *ends,
                         int client, int64_t now_us, int64_t asked_us)
{
    const struct holder *holder = &holders->of[client];

    return holders_believes(holders, client, now_us) && holder->since_us < asked_us &&
           !breaks_excuse(ends, holder->name, holder->asked_us);
}

static bool lists(const struct check_read *read, uint64_t token)
{
    for (int i = 0; i < read->count; i++)
        if (read->tokens[i] == token)
            return true;
    return false;
}

void reads_holders(const struct check_holders *holders, const struct check_ends *ends,
                   struct verdict *verdict, int64_t now_us, int name, const struct check_read *read)
{
    for (int i = 0; i < read->count; i++)
        ends_alive(ends, verdict, read->tokens[i], read->asked_us);
    for (int i = 0; i < CHECK_CLIENTS && read->count < CHECK_READ; i++)
        if (holders->of[i].name == name && surely_holds(holders, ends, i, now_us, read->asked_us) &&
            !lists(read, holders->of[i].token))
            verdict_wrong(verdict,
                          "a read of name %d does not show token %llu of client %d, who was told "
                          "%lld us before it began",
                          name, (unsigned long long)holders->of[i].token, i,
                          (long long)(read->asked_us - holders->of[i].since_us));
}

void reads_names(const struct check_holders *holders, const struct check_ends *ends,
                 struct verdict *verdict, int64_t now_us, const struct check_read *read)
{
    for (int i = 0; i < CHECK_CLIENTS; i++) {
        int name = holders->of[i].name;

        if (name < CHECK_NAMES && surely_holds(holders, ends, i, now_us, read->asked_us) &&
            !(read->names & UINT64_C(1) << name))
            verdict_wrong(verdict,
                          "a list of the locks does not show name %d, which client %d holds", name,
                          i);
    }
}
