#include "disk_state.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

const unsigned char *trace_bytes(const struct trace_record *record)
{
    return (const unsigned char *)(record + 1);
}

/* ---- names ------------------------------------------------------------------------------------ */

void disk_names_free(struct disk_names *names)
{
    free(names->entries);
    *names = (struct disk_names){0};
}

struct disk_names disk_names_copy(const struct disk_names *names)
{
    struct disk_names copy = *names;

    copy.entries = malloc(DISK_ENTRIES_MAX * sizeof *copy.entries);
    assert_non_null(copy.entries);
    if (names->count > 0)
        memcpy(copy.entries, names->entries, names->count * sizeof *copy.entries);
    return copy;
}

static void take_name(struct disk_names *names, const char *name)
{
    for (size_t i = 0; i < names->count; i++)
        if (strcmp(names->entries[i].name, name) == 0) {
            names->entries[i] = names->entries[--names->count];
            return;
        }
}

static void give_name(struct disk_names *names, const char *name, int object)
{
    take_name(names, name);
    if (!names->entries)
        *names = disk_names_copy(names);
    assert_true(names->count < DISK_ENTRIES_MAX);
    memcpy(names->entries[names->count].name, name, NAME_MAX + 1);
    names->entries[names->count++].object = object;
}

void disk_names_apply(struct disk_names *names, const struct disk_pending *pending)
{
    const struct trace_record *record = pending->record;

    switch (record->kind) {
    case TRACE_CREATE:
    case TRACE_LINK:
        give_name(names, record->name, pending->named);
        break;
    case TRACE_UNLINK:
        take_name(names, record->name);
        break;
    case TRACE_RENAME:
        take_name(names, record->name);
        give_name(names, record->other_name, pending->named);
        break;
    default:
        fail_msg("call %ju does not change names", (uintmax_t)record->number);
    }
}

void disk_content_apply(struct content *content, const struct trace_record *record)
{
    switch (record->kind) {
    case TRACE_WRITE:
    case TRACE_STORED:
        content_write(content, record->offset, trace_bytes(record), record->size);
        break;
    case TRACE_SIZE:
        content_resize(content, record->offset);
        break;
    case TRACE_ROOM:
        if (record->offset > content->size)
            content_resize(content, record->offset);
        break;
    default:
        fail_msg("call %ju does not change content", (uintmax_t)record->number);
    }
}

/* ---- reading ---------------------------------------------------------------------------------- */

static int new_object(struct disk_state *state, uint64_t inode, bool is_directory)
{
    assert_true(state->object_count < DISK_OBJECTS_MAX);
    state->objects[state->object_count] =
        (struct disk_object){.inode = inode, .is_directory = is_directory};
    return state->object_count++;
}

/* The newest: the numbers of files that have gone are used again. */
static int find(const struct disk_state *state, uint64_t inode)
{
    for (int i = state->object_count - 1; i >= 0; i--)
        if (state->objects[i].inode == inode)
            return i;
    fail_msg("call %ju is about inode %ju, which nobody made", (uintmax_t)state->number,
             (uintmax_t)inode);
    return -1;
}

void disk_state_load(struct disk_state *state, const char *trace, uint64_t root)
{
    int fd = open(trace, O_RDONLY | O_CLOEXEC);
    struct stat info;

    memset(state, 0, sizeof *state);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &info), 0);
    state->size = (size_t)info.st_size;
    state->trace = malloc(state->size + 1);
    state->objects = calloc(DISK_OBJECTS_MAX, sizeof *state->objects);
    state->pending = calloc(DISK_PENDING_MAX, sizeof *state->pending);
    assert_true(state->trace && state->objects && state->pending);
    for (size_t got = 0; got < state->size;) {
        ssize_t count = read(fd, state->trace + got, state->size - got);

        assert_true(count > 0);
        got += (size_t)count;
    }
    close(fd);
    new_object(state, root, true);
}

void disk_state_free(struct disk_state *state)
{
    for (int i = 0; i < state->object_count; i++) {
        content_free(&state->objects[i].content);
        disk_names_free(&state->objects[i].names);
    }
    free(state->objects);
    free(state->pending);
    free(state->trace);
    memset(state, 0, sizeof *state);
}

/* ---- what is there for sure ------------------------------------------------------------------- */

static void apply(struct disk_state *state, const struct disk_pending *pending)
{
    struct disk_object *object = &state->objects[pending->object];

    if (object->is_directory)
        disk_names_apply(&object->names, pending);
    else
        disk_content_apply(&object->content, pending->record);
}

/* All calls before that number that changed this object. */
static void settle(struct disk_state *state, int object, uint64_t before)
{
    int left = 0;

    for (int i = 0; i < state->pending_count; i++) {
        const struct disk_pending *pending = &state->pending[i];

        if (pending->object == object && pending->record->number < before)
            apply(state, pending);
        else
            state->pending[left++] = *pending;
    }
    state->pending_count = left;
}

/* The last write of this object; at once, if there is no other that it could be mixed up with. */
static void make_durable(struct disk_state *state, int object)
{
    int count = 0, last = -1;

    for (int i = 0; i < state->pending_count; i++)
        if (state->pending[i].object == object) {
            count++;
            last = i;
        }
    assert_true(last >= 0);
    state->pending[last].must = true;
    if (count == 1)
        settle(state, object, UINT64_MAX);
}

static void add(struct disk_state *state, const struct trace_record *record, int object, int named)
{
    assert_true(state->pending_count < DISK_PENDING_MAX);
    state->pending[state->pending_count++] =
        (struct disk_pending){.record = record, .object = object, .named = named};
}

bool disk_state_step(struct disk_state *state)
{
    const struct trace_record *record = (const struct trace_record *)(state->trace + state->at);

    if (state->at >= state->size)
        return false;
    state->at += sizeof *record + (record->size + 7U) / 8 * 8;
    if (record->number) /* 0: a mark of another process */
        state->number = record->number;
    switch (record->kind) {
    case TRACE_MARK:
        state->marks++;
        state->mark = record->offset;
        break;
    case TRACE_CREATE:
        add(state, record, find(state, record->directory),
            new_object(state, record->inode, record->is_directory));
        break;
    case TRACE_RENAME: /* from one directory to another: nobody does that */
        assert_true(record->directory == record->other_directory);
        /* fall through */
    case TRACE_LINK:
        add(state, record, find(state, record->directory), find(state, record->inode));
        break;
    case TRACE_UNLINK:
        add(state, record, find(state, record->directory), -1);
        break;
    case TRACE_DURABLE:
        make_durable(state, find(state, record->inode));
        break;
    case TRACE_SYNC_BEGIN:
        break;
    case TRACE_SYNC_END:
        settle(state, find(state, record->inode), record->offset);
        break;
    default:
        add(state, record, find(state, record->inode), -1);
    }
    return true;
}
