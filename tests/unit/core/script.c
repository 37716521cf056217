/* script.c: see script.h. */
#include "script.h"

#include "base/text.h"
#include "telling.h"
#include "tools.h"

#define WORDS_MAX 32
#define LINE_MAX_BYTES 1024
#define LINES_MAX 40 /* if more comes out of an entry than that, it is counted */
#define HEADINGS_MAX 24

struct player {
    const char *path;
    int line;
    struct core *core;
    bool reborn;
    unsigned char seed; /* of the next table */
    FILE *out;          /* the script as it comes out */

    struct core_packer packer; /* the entry so far */
    bool grouped;              /* between { and } */
    uint32_t elapsed_ms;
    bool new_term;

    /* What came out of the entry. */
    FILE *effects;
    char *effects_text;
    size_t effects_size;
    bool numbered; /* it has more than one command */
    int lines;
    struct {
        char text[HEADING_MAX];
        int count;
    } headings[HEADINGS_MAX];
};

struct words {
    char *word[WORDS_MAX];
    int count, at;
};

static _Noreturn void wrong(const struct player *player, const char *format, const char *word)
{
    char message[256];

    snprintf(message, sizeof message, format, word ? word : "the end of the line");
    print_error("%s:%d: %s\n", player->path, player->line, message);
    fail();
    abort(); /* fail() does not come back, which the compiler cannot know */
}

/* ---- entries ---------------------------------------------------------------------------------- */

static void note(void *context, const struct core_effect *effect)
{
    struct player *player = context;
    char heading[HEADING_MAX];
    size_t i = 0;

    tell_effect(player->effects, effect, player->numbered);
    player->lines++;
    tell_heading(effect, heading);
    while (player->headings[i].count && strcmp(player->headings[i].text, heading) != 0)
        assert_true(++i < HEADINGS_MAX);
    memcpy(player->headings[i].text, heading, sizeof heading);
    player->headings[i].count++;
}

static void put_effects(struct player *player)
{
    fflush(player->effects);
    if (player->lines <= LINES_MAX)
        fwrite(player->effects_text, 1, (size_t)ftell(player->effects), player->out);
    else
        for (size_t i = 0; i < HEADINGS_MAX && player->headings[i].count; i++)
            fprintf(player->out, "    %d times: %s\n", player->headings[i].count,
                    player->headings[i].text);
    rewind(player->effects);
    player->lines = 0;
    memset(player->headings, 0, sizeof player->headings);
}

/* The table as it would be on a node that has just been sent it. */
static void go_through_a_snapshot(struct player *player)
{
    size_t size = 0;
    void *bytes;

    if (player->reborn) {
        player->core = table_reborn(player->core, player->seed++);
        return;
    }
    bytes = snapshot_whole(player->core, &size);
    assert_true(core_hash(player->core) == restored_hash(bytes, size));
    free(bytes);
}

static void apply(struct player *player)
{
    const struct core_sink sink = {player, note};
    struct error_text err = {""};

    player->numbered = player->packer.count > 1;
    core_packer_finish(&player->packer, player->elapsed_ms, player->new_term, 0, 0);
    if (core_apply(player->core, player->packer.bytes, player->packer.size, &sink, &err) != HF_OK)
        wrong(player, "%s", err.text);
    core_packer_clear(&player->packer);
    player->elapsed_ms = 0;
    player->new_term = player->grouped = false;
    if (core_check(player->core, &err) != HF_OK)
        wrong(player, "%s", err.text);
    put_effects(player);
    go_through_a_snapshot(player);
}

/* ---- words ------------------------------------------------------------------------------------ */

static bool more(const struct words *words)
{
    return words->at < words->count;
}

static const char *next_word(const struct player *player, struct words *words)
{
    if (!more(words))
        wrong(player, "a word is missing: %s", NULL);
    return words->word[words->at++];
}

static bool word_is(struct words *words, const char *expected)
{
    if (!more(words) || strcmp(words->word[words->at], expected) != 0)
        return false;
    words->at++;
    return true;
}

static uint64_t number(const struct player *player, struct words *words)
{
    const char *word = next_word(player, words);
    uint64_t value = 0;

    if (!text_to_u64(word, UINT64_MAX, &value))
        wrong(player, "not a number: %s", word);
    return value;
}

/* "word N", or what it is without that. */
static uint64_t optional(const struct player *player, struct words *words, const char *word,
                         uint64_t otherwise)
{
    return word_is(words, word) ? number(player, words) : otherwise;
}

static void expect(const struct player *player, struct words *words, const char *word)
{
    if (!word_is(words, word))
        wrong(player, "this word is missing: %s", word);
}

static struct core_text name(const struct player *player, struct words *words, uint32_t *flags)
{
    const char *word = next_word(player, words);

    if (strncmp(word, "once:", 5) != 0)
        return text(word);
    *flags |= CORE_ONCE;
    return text(word + 5);
}

/* ---- commands --------------------------------------------------------------------------------- */

static void parse_wait(const struct player *player, struct words *words,
                       struct core_command *command)
{
    command->flags |= CORE_WAITS;
    command->wait_ms = word_is(words, "forever") ? CORE_FOREVER : number(player, words);
    if (word_is(words, "kept"))
        command->flags |= CORE_KEPT;
    else
        expect(player, words, "push");
}

static void parse_user(const struct player *player, struct words *words,
                       struct core_command *command)
{
    command->flags |= CORE_QUOTA;
    command->user = text(next_word(player, words));
    command->quota.leases = (uint32_t)optional(player, words, "leases", 0);
    command->quota.holds = (uint32_t)optional(player, words, "holds", 0);
    command->quota.places = (uint32_t)optional(player, words, "places", 0);
}

static void parse_acquire(const struct player *player, struct words *words,
                          struct core_command *command)
{
    command->name = name(player, words, &command->flags);
    command->lease = text(next_word(player, words));
    command->ttl_ms = 30000;
    while (more(words)) {
        if (word_is(words, "ttl"))
            command->ttl_ms = (uint32_t)number(player, words);
        else if (word_is(words, "wait"))
            parse_wait(player, words, command);
        else if (word_is(words, "shared"))
            command->mode = HF_SHARED;
        else if (word_is(words, "permits")) {
            command->mode = HF_PERMIT;
            command->permits = (uint32_t)number(player, words);
        } else if (word_is(words, "delay"))
            command->delay_ms = number(player, words);
        else if (word_is(words, "owner"))
            command->owner = text(next_word(player, words));
        else if (word_is(words, "no-heir"))
            command->flags |= CORE_NO_HEIR;
        else if (word_is(words, "user"))
            parse_user(player, words, command);
        else
            wrong(player, "not a word of acquire: %s", words->word[words->at]);
    }
}

static void parse_renew(const struct player *player, struct words *words,
                        struct core_command *command, struct core_text *leases)
{
    while (more(words) && strcmp(words->word[words->at], "ttl") != 0)
        leases[command->lease_count++] = text(next_word(player, words));
    command->leases = leases;
    command->ttl_ms = (uint32_t)optional(player, words, "ttl", 0);
}

static void parse_finish(const struct player *player, struct words *words,
                         struct core_command *command)
{
    command->name = name(player, words, &command->flags);
    command->lease = text(next_word(player, words));
    expect(player, words, "token");
    command->token = number(player, words);
    expect(player, words, "keep");
    command->keep_ms = number(player, words);
    expect(player, words, "result");
    command->result = text(next_word(player, words));
}

/* The ops whose fields are few. */
static void parse_small(const struct player *player, struct words *words,
                        struct core_command *command)
{
    if (command->op == CORE_RELEASE || command->op == CORE_LEAVE || command->op == CORE_BREAK)
        command->name = name(player, words, &command->flags);
    if (command->op == CORE_RELEASE || command->op == CORE_LEAVE || command->op == CORE_END)
        command->lease = text(next_word(player, words));
    if (command->op == CORE_RELEASE)
        command->token = optional(player, words, "token", 0);
    if (command->op == CORE_END)
        command->ttl_ms = (uint32_t)optional(player, words, "ttl", 0);
    if (command->op == CORE_LEAVE) {
        expect(player, words, "attachment");
        command->attachment = (uint32_t)number(player, words);
    }
    if (command->op == CORE_BREAK && word_is(words, "now"))
        command->flags |= CORE_NOW;
    if (command->op == CORE_FLOOR)
        command->token = number(player, words);
    if (command->op == CORE_MEMBER) {
        command->token = number(player, words);
        if (words->at < words->count)
            command->result = text(next_word(player, words));
    }
    if (command->op == CORE_IDENTITY) {
        command->result = text(next_word(player, words));
        command->flags |= word_is(words, "force") ? CORE_FORCE : 0;
        if (words->at < words->count)
            command->token = number(player, words);
    }
}

static bool pack(struct player *player, struct words *words)
{
    static const struct {
        const char *word;
        enum core_op op;
    } ops[] = {{"read", CORE_READ},         {"acquire", CORE_ACQUIRE}, {"release", CORE_RELEASE},
               {"renew", CORE_RENEW},       {"end", CORE_END},         {"leave", CORE_LEAVE},
               {"break", CORE_BREAK},       {"floor", CORE_FLOOR},     {"finish", CORE_FINISH},
               {"identity", CORE_IDENTITY}, {"member", CORE_MEMBER}};
    struct core_command command = {0};
    struct core_text leases[WORDS_MAX];

    for (size_t i = 0; i < COUNT(ops) && !command.op; i++)
        if (word_is(words, ops[i].word))
            command.op = ops[i].op;
    switch (command.op) {
    case CORE_ACQUIRE:
        parse_acquire(player, words, &command);
        break;
    case CORE_RENEW:
        parse_renew(player, words, &command, leases);
        break;
    case CORE_FINISH:
        parse_finish(player, words, &command);
        break;
    default:
        if (!command.op)
            return false;
        parse_small(player, words, &command);
    }
    if (core_pack(&player->packer, &command) == CORE_NOT_PACKED) {
        fputs("    not packed\n", player->effects);
        player->lines++;
    }
    return true;
}

/* Each % becomes the number. The words live as long as the call of `pack`. */
static void pack_many(struct player *player, struct words *words)
{
    static char room[WORDS_MAX][64];
    uint64_t count = number(player, words);

    for (uint64_t n = 1; n <= count; n++) {
        struct words copy = {.count = words->count, .at = words->at};

        for (int i = words->at; i < words->count; i++) {
            const char *word = words->word[i], *mark = strchr(word, '%');

            copy.word[i] = room[i];
            if (mark)
                snprintf(room[i], sizeof room[i], "%.*s%llu%s", (int)(mark - word), word,
                         (unsigned long long)n, mark + 1);
            else
                snprintf(room[i], sizeof room[i], "%s", word);
        }
        if (!pack(player, &copy))
            wrong(player, "not a command: %s", words->word[words->at]);
    }
}

/* ---- looking ---------------------------------------------------------------------------------- */

static bool look(struct player *player, struct words *words)
{
    if (word_is(words, "show")) {
        uint32_t flags = 0;
        struct core_text which = name(player, words, &flags);

        tell_lock(player->out, player->core, which, flags);
    } else if (word_is(words, "count")) {
        tell_counts(player->out, player->core);
    } else if (word_is(words, "usage")) {
        struct core_usage usage = {0};

        core_usage(player->core, text(next_word(player, words)), &usage);
        fprintf(player->out, "    %u leases, %u holds, %u places\n", usage.leases, usage.holds,
                usage.places);
    } else if (word_is(words, "next")) {
        int64_t next_ms = core_next_deadline(player->core);

        if (next_ms < 0)
            fputs("    none\n", player->out);
        else
            fprintf(player->out, "    in %lld\n", (long long)(next_ms - core_now(player->core)));
    } else if (word_is(words, "alive")) {
        struct core_text which = text(next_word(player, words));

        fputs(core_alive(player->core, which, number(player, words)) ? "    yes\n" : "    no\n",
              player->out);
    } else {
        return false;
    }
    return true;
}

/* ---- lines ------------------------------------------------------------------------------------ */

static void split(const struct player *player, char *line, struct words *words)
{
    char *rest = line;

    words->count = words->at = 0;
    while (*(rest += strspn(rest, " "))) {
        if (words->count == WORDS_MAX)
            wrong(player, "too many words: %s", rest);
        words->word[words->count++] = rest;
        rest += strcspn(rest, " ");
        if (*rest)
            *rest++ = '\0';
    }
}

static bool elapses(struct player *player, struct words *words, uint64_t *ret_ms)
{
    const char *word = more(words) ? words->word[words->at] : "";

    if (word[0] != '+')
        return false;
    if (!text_to_u64(word + 1, 100000000, ret_ms))
        wrong(player, "not a time: %s", word);
    words->at++;
    return true;
}

static void open_group(struct player *player, struct words *words)
{
    uint64_t ms = 0;

    player->grouped = true;
    if (elapses(player, words, &ms))
        player->elapsed_ms = (uint32_t)ms;
    player->new_term = word_is(words, "term");
}

static void play_line(struct player *player, struct words *words)
{
    uint64_t ms;

    if (player->grouped) {
        if (word_is(words, "}"))
            apply(player);
        else if (!pack(player, words))
            wrong(player, "not a command: %s", words->word[0]);
    } else if (elapses(player, words, &ms)) {
        do {
            player->elapsed_ms = ms < CORE_ELAPSED_MAX_MS ? (uint32_t)ms : CORE_ELAPSED_MAX_MS;
            ms -= player->elapsed_ms;
            apply(player);
        } while (ms > 0);
    } else if (word_is(words, "term")) {
        player->new_term = true;
        apply(player);
    } else if (word_is(words, "{")) {
        open_group(player, words);
    } else if (word_is(words, "many")) {
        pack_many(player, words);
        words->at = words->count;
        apply(player);
    } else if (!look(player, words)) {
        if (!pack(player, words))
            wrong(player, "not a command: %s", words->word[0]);
        if (player->packer.count > 0)
            apply(player);
        else
            put_effects(player);
    }
    if (more(words))
        wrong(player, "one word too many: %s", words->word[words->at]);
}

char *script_play(const char *path, const char *script, bool reborn)
{
    struct player player = {.path = path, .reborn = reborn, .seed = 2};
    char *played = NULL, line[LINE_MAX_BYTES];
    size_t size = 0;
    struct words words;

    player.core = table_new(1);
    player.out = open_memstream(&played, &size);
    player.effects = open_memstream(&player.effects_text, &player.effects_size);
    assert_true(player.out && player.effects);
    for (const char *at = script; *at; at += strcspn(at, "\n"), at += *at == '\n') {
        size_t length = strcspn(at, "\n");

        player.line++;
        if (*at == ' ')
            continue;
        assert_true(length < sizeof line);
        fprintf(player.out, "%.*s\n", (int)length, at);
        snprintf(line, sizeof line, "%.*s", (int)length, at);
        split(&player, line, &words);
        if (*at != '#' && words.count)
            play_line(&player, &words);
    }
    if (player.grouped)
        wrong(&player, "a } is missing: %s", NULL);
    fclose(player.out);
    fclose(player.effects);
    free(player.effects_text);
    core_packer_free(&player.packer);
    core_free(player.core);
    return played;
}
