/* cmd_command.c: COMMAND: which commands there are, in the form in which Redis tells it, and which right each needs. */
#include "server/cmd_command.h"

#include <stdio.h>
#include <string.h>

#define LONG_NAME_MAX 48 /* "once|release" */

/* In small letters; of a part with its whole: "cluster|add". */
static void write_name(struct resp_writer *out, const struct command *whole,
                       const struct command *command)
{
    char text[LONG_NAME_MAX];
    int size = snprintf(text, sizeof text, "%s%s%s", whole ? whole->name : "", whole ? "|" : "",
                        command->name);

    for (int i = 0; i < size && i < LONG_NAME_MAX - 1; i++)
        if (text[i] >= 'A' && text[i] <= 'Z')
            text[i] = (char)(text[i] | 0x20);
    resp_write_text(out, text);
}

struct key_range {
    int first, last, step;
};

/* For clients that send a command to whoever has its keys: any of the words will do. */
static struct key_range keys_of(const struct command *command)
{
    switch (command->names) {
    case NAMES_FIRST:
    case NAMES_CHECKED:
    case NAMES_LEASES:
        return (struct key_range){1, 1, 1};
    case NAMES_SECOND:
        return (struct key_range){2, 2, 1};
    case NAMES_ALL:
        return (struct key_range){1, -1, 1};
    default:
        return (struct key_range){0, 0, 0};
    }
}

static void write_right(struct resp_writer *out, const struct command *command)
{
    char text[16];

    if (command->right == RIGHT_NONE) {
        resp_write_array(out, 0);
        return;
    }
    resp_write_array(out, 1);
    snprintf(text, sizeof text, "@%s", right_word(command->right));
    resp_write_simple(out, text);
}

static size_t count_parts(const struct command *command)
{
    size_t count = 0;

    while (command->parts && command->parts[count].name)
        count++;
    return count;
}

/* name, arity, flags, first key, last key, step, rights, tips, key specifications, and the same of its parts */
static void write_row(struct resp_writer *out, const struct command *whole,
                      const struct command *command, size_t parts)
{
    struct key_range keys = keys_of(command);

    resp_write_array(out, 10);
    write_name(out, whole, command);
    resp_write_integer(out, command->arity);
    resp_write_array(out, 1);
    resp_write_simple(out, command->traits & COMMAND_WRITES   ? "write"
                           : command->traits & COMMAND_LOGGED ? "readonly"
                                                              : "fast");
    resp_write_integer(out, keys.first);
    resp_write_integer(out, keys.last);
    resp_write_integer(out, keys.step);
    write_right(out, command);
    resp_write_array(out, 0);
    resp_write_array(out, 0);
    resp_write_array(out, parts);
}

static void write_command(struct resp_writer *out, const struct command *command)
{
    size_t parts = count_parts(command);

    write_row(out, NULL, command, parts);
    for (size_t i = 0; i < parts; i++)
        write_row(out, command, &command->parts[i], 0);
}

static void write_docs(struct resp_writer *out, const struct command *command, bool resp3)
{
    char text[512];

    write_name(out, NULL, command);
    resp_write_map(out, 3, resp3);
    resp_write_text(out, "summary");
    snprintf(text, sizeof text, "%s: %s %s", command->summary, command->name, command->syntax);
    resp_write_text(out, text);
    resp_write_text(out, "since");
    resp_write_text(out, HOLDFAST_VERSION);
    resp_write_text(out, "group");
    resp_write_text(out, "holdfast");
}

static bool is_asked(const struct resp_node *value, const struct command *command)
{
    if (value->count <= 2)
        return true;
    for (uint32_t i = 2; i < value->count; i++)
        if (word_is(word_at(value, i), command->name))
            return true;
    return false;
}

static void command_docs(struct session *session, const struct resp_node *value)
{
    const struct command *command;
    size_t count = 0;

    for (size_t i = 0; (command = command_at(session->sessions, i)); i++)
        count += is_asked(value, command);
    resp_write_map(&session->out, count, session->resp3);
    for (size_t i = 0; (command = command_at(session->sessions, i)); i++)
        if (is_asked(value, command))
            write_docs(&session->out, command, session->resp3);
}

/* All, or those that are asked for in their order, nil for what there is not. */
static void command_rows(struct session *session, const struct resp_node *value)
{
    struct resp_writer *out = &session->out;
    size_t count = command_count(session->sessions);

    resp_write_array(out, value->count <= 2 ? count : value->count - 2);
    for (size_t i = 0; value->count <= 2 && i < count; i++)
        write_command(out, command_at(session->sessions, i));
    for (uint32_t i = 2; i < value->count; i++) {
        const struct command *command = command_find(session->sessions, word_at(value, i));

        if (command)
            write_command(out, command);
        else
            resp_write_nil(out, session->resp3);
    }
}

enum verdict command_command(struct session *session, const struct resp_node *value)
{
    const struct resp_node *what = word_at(value, 1);
    size_t count = command_count(session->sessions);

    if (!what || word_is(what, "INFO")) {
        command_rows(session, value);
    } else if (word_is(what, "DOCS")) {
        command_docs(session, value);
    } else if (word_is(what, "COUNT")) {
        resp_write_integer(&session->out, (int64_t)count);
    } else if (word_is(what, "LIST")) {
        resp_write_array(&session->out, count);
        for (size_t i = 0; i < count; i++)
            write_name(&session->out, NULL, command_at(session->sessions, i));
    } else {
        return refuse(session, "ERR COMMAND is followed by COUNT, LIST, INFO or DOCS");
    }
    return VERDICT_DONE;
}
