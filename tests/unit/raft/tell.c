/* tell.c: what happens in a cluster, in words, a line each. */
#include "cluster.h"

static const char *const roles[] = {"follower", "pre-candidate", "candidate", "leader"};

static int letter(uint64_t id)
{
    return id == 0 ? '-' : (int)('A' + id - 1);
}

static void tell_entries(FILE *out, const struct cluster_message *message)
{
    uint64_t index = message->message.id.index;

    if (message->count == 0)
        return;
    fputs(", entries", out);
    for (uint32_t i = 0; i < message->count; i++) {
        const struct raft_entry *entry = cluster_entry(message->entries[i]);

        fprintf(out, " %d/%d%s", (int)++index, (int)entry->term,
                entry->type == RAFT_CONFIG          ? " (members)"
                : entry->type == RAFT_FIRST_OF_TERM ? " (first)"
                                                    : "");
    }
}

static void tell_reply(FILE *out, const struct raft_message *message)
{
    if (message->type != RAFT_APPEND_REPLY)
        fprintf(out, "%s, %s to term %d",
                message->type == RAFT_VOTE_REPLY ? "vote-reply" : "pre-vote-reply",
                message->yes ? "yes" : "no", (int)message->asked_term);
    else if (message->yes)
        fprintf(out, "append-reply, yes to %d", (int)message->index);
    else if (message->hint_index)
        fprintf(out, "append-reply, no to %d, hint %d/%d", (int)message->index,
                (int)message->hint_index, (int)message->hint_term);
    else
        fprintf(out, "append-reply, no to %d", (int)message->index);
}

static void tell_id(FILE *out, const char *what, const struct raft_id *id)
{
    fprintf(out, "%s %d/%d", what, (int)id->index, (int)id->term);
}

void tell_message(FILE *out, const struct cluster_message *full)
{
    const struct raft_message *message = &full->message;

    fprintf(out, "    %c->%c term %d ", letter(message->from), letter(message->to),
            (int)message->term);
    switch (message->type) {
    case RAFT_APPEND:
        tell_id(out, "append after", &message->id);
        tell_entries(out, full);
        fprintf(out, ", commit %d", (int)message->commit);
        break;
    case RAFT_VOTE:
    case RAFT_PRE_VOTE:
        tell_id(out, message->type == RAFT_VOTE ? "vote, last" : "pre-vote, last", &message->id);
        fputs(message->transfer ? ", by order" : "", out);
        break;
    case RAFT_TIMEOUT_NOW:
        tell_id(out, "timeout-now, last", &message->id);
        break;
    case RAFT_SNAPSHOT:
        tell_id(out, "snapshot", &message->id);
        break;
    default:
        tell_reply(out, message);
        break;
    }
    fputc('\n', out);
}

static void tell_members(FILE *out, const struct raft *raft)
{
    struct raft_members members;

    raft_members(raft, &members);
    fprintf(out, "members of %d:", (int)members.index);
    for (int i = 0; i < members.count; i++) {
        fprintf(out, " %c", letter(members.at[i].id));
        if (members.at[i].incarnation != 1)
            fprintf(out, ".%d", (int)members.at[i].incarnation);
        fputs(members.at[i].votes ? "" : " (learns)", out);
    }
}

static void tell_role(FILE *out, const struct raft *raft)
{
    enum raft_role role = raft_role(raft);

    fputs(roles[role], out);
    if (role == RAFT_FOLLOWER && raft_leader(raft))
        fprintf(out, " of %c", letter(raft_leader(raft)));
    fprintf(out, ", term %d", (int)raft_term(raft));
}

void tell_state(FILE *out, const struct cluster_node *node)
{
    const struct raft *raft = cluster_raft(node);

    fprintf(out, "    %c: ", letter(node->id));
    if (!node->up) {
        fputs("down\n", out);
        return;
    }
    fputs(node->stopped ? "stopped, " : "", out);
    tell_role(out, raft);
    fputs(", log", out);
    if (node->snapshot.index > 0)
        fprintf(out, " (%d/%d)", (int)node->snapshot.index, (int)node->snapshot.term);
    for (uint64_t i = node->snapshot.index + 1; i <= raft_last(raft); i++)
        fprintf(out, " %d", (int)cluster_log_term(node, i));
    fprintf(out, ", commit %d, ", (int)raft_commit(raft));
    tell_members(out, raft);
    if (node->write_count > 0)
        fprintf(out, ", %d writes wait", node->write_count);
    fputc('\n', out);
}

void tell_known(struct cluster_node *node)
{
    const struct raft *raft = cluster_raft(node);
    struct raft_members members;

    raft_members(raft, &members);
    node->told.role = (int)raft_role(raft);
    node->told.leader = raft_leader(raft);
    node->told.term = raft_term(raft);
    node->told.members = members.index;
}

static void tell_changes(FILE *out, struct cluster_node *node)
{
    const struct raft *raft = cluster_raft(node);
    struct raft_members members;

    raft_members(raft, &members);
    if (node->told.role != (int)raft_role(raft) || node->told.leader != raft_leader(raft) ||
        node->told.term != raft_term(raft)) {
        fprintf(out, "    %c: ", letter(node->id));
        tell_role(out, raft);
        fputc('\n', out);
    }
    if (node->told.members != members.index) {
        fprintf(out, "    %c: ", letter(node->id));
        tell_members(out, raft);
        fputc('\n', out);
    }
    tell_known(node);
}

void tell_output(struct cluster *cluster, struct cluster_node *node,
                 const struct raft_output *output, bool asked)
{
    static const char *const results[] = {
        "ok",         "not the leader", "busy",        "no such member",
        "not needed", "too many",       "no majority", "the last voter"};
    FILE *out = cluster->tell;
    int me = letter(node->id);

    if (output->result != RAFT_OK && asked)
        fprintf(out, "    %c: %s\n", me, results[output->result]);
    if (output->persist)
        fprintf(out, "    %c: persists term %d, vote %c\n", me, (int)output->term,
                letter(output->vote));
    tell_changes(out, node);
    if (output->index > 0 && output->result == RAFT_OK)
        fprintf(out, "    %c: entry %d\n", me, (int)output->index);
    if (output->append)
        fprintf(out, "    %c: writes %d to %d\n", me, (int)output->append_first,
                (int)output->append_last);
    if (output->committed)
        fprintf(out, "    %c: commits %d\n", me, (int)output->commit);
    if (output->caught_up)
        fprintf(out, "    %c: %c has caught up\n", me, letter(output->caught_up));
    if (output->fatal)
        fprintf(out, "    %c: stops: %s\n", me, output->fatal);
}
