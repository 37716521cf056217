/* Unit tests of base/users_file.c: what may stand in the users file, and what is said of the rest. */
#include "base/users_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define HASH "$y$j9T$aaaaaaaaaaaaaaaaaaaaa.$bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define COUNT(rows) (sizeof(rows) / sizeof *(rows))

/* ---- rights ------------------------------------------------------------------------------------ */

static bool is_pattern(const struct users_allow *allow, size_t i, const char *text)
{
    return i < allow->pattern_count && allow->patterns[i].size == strlen(text) &&
           memcmp(allow->patterns[i].bytes, text, strlen(text)) == 0;
}

static void rights_are_verbs_and_patterns(void **state)
{
    struct users_allow allow;

    (void)state;
    assert_int_equal(HF_OK, users_file_allow("acquire look: jobs/* reports/*", &allow, NULL));
    assert_int_equal(USERS_ACQUIRE | USERS_LOOK, allow.verbs);
    assert_int_equal(2, allow.pattern_count);
    assert_true(is_pattern(&allow, 0, "jobs/*") && is_pattern(&allow, 1, "reports/*"));
    assert_int_equal(HF_OK, users_file_allow("floor\tadmin", &allow, NULL));
    assert_int_equal(USERS_FLOOR | USERS_ADMIN, allow.verbs);
    assert_int_equal(0, allow.pattern_count);
    /* The first colon ends the verbs, and any other belongs to a name. */
    assert_int_equal(HF_OK, users_file_allow(" break :pay:* [a-z:]? \\[x", &allow, NULL));
    assert_int_equal(USERS_BREAK, allow.verbs);
    assert_int_equal(3, allow.pattern_count);
    assert_true(is_pattern(&allow, 0, "pay:*") && is_pattern(&allow, 1, "[a-z:]?"));
    assert_int_equal(HF_OK, users_file_allow("look look", &allow, NULL));
    assert_int_equal(USERS_LOOK, allow.verbs);
}

static void verbs_are_the_bits_in_their_order(void **state)
{
    struct users_allow allow;

    (void)state;
    for (unsigned i = 0; i < USERS_VERBS; i++) {
        assert_int_equal(HF_OK, users_file_allow(users_verb_words[i], &allow, NULL));
        assert_int_equal(1u << i, allow.verbs);
    }
    assert_string_equal("acquire", users_verb_words[0]);
    assert_string_equal("admin", users_verb_words[4]);
}

static void wrong_rights_are_told_in_words(void **state)
{
    static const struct {
        const char *value, *why;
    } rows[] = {
        {"", "is missing"},
        {"  ", "is missing"},
        {": jobs/*", "is missing"},
        {"aquire", "unknown verb 'aquire': did you mean 'acquire'?"},
        {"acquire, look", "did you mean 'acquire'?"},
        {"acquire look jobs/*", "'jobs/*' is no verb: patterns of names come after a colon"},
        {"everything", "there are acquire, look, break, floor and admin"},
        {"acquire:", "no pattern after the colon"},
        {"acquire: ", "no pattern after the colon"},
        {"floor: jobs/*", "floor has no names"},
        {"acquire admin: jobs/*", "admin has no names"},
        {"look: a[b", "the pattern a[b has a [ without its ]"},
        {"look: a[b\\]", "without its ]"},
        {"look: jobs/\x07", "a control character"},
        {"look: a\nb", "a control character"},
        {"look: #jobs", "begins a comment"},
    };
    struct users_allow allow = {.verbs = 77};
    struct error_text err;

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_int_equal(HF_EINVAL, users_file_allow(rows[i].value, &allow, &err));
        if (!strstr(err.text, rows[i].why))
            fail_msg("%s: %s", rows[i].value, err.text);
        assert_int_equal(77, allow.verbs);
    }
}

static void rights_have_limits(void **state)
{
    static char value[16 + 2 * (USERS_GRANTS_MAX + 1)], name[16 + HF_NAME_MAX + 2];
    struct users_allow allow;
    struct error_text err;
    int length = snprintf(value, sizeof value, "look:");

    (void)state;
    for (unsigned i = 0; i < USERS_GRANTS_MAX; i++)
        length += snprintf(value + length, sizeof value - (size_t)length, " a");
    assert_int_equal(HF_OK, users_file_allow(value, &allow, NULL));
    assert_int_equal(USERS_GRANTS_MAX, allow.pattern_count);
    snprintf(value + length, sizeof value - (size_t)length, " a");
    assert_int_equal(HF_EINVAL, users_file_allow(value, &allow, &err));
    assert_non_null(strstr(err.text, "more than 256 patterns"));
    snprintf(name, sizeof name, "look: %0*d", HF_NAME_MAX, 0);
    assert_int_equal(HF_OK, users_file_allow(name, &allow, NULL));
    snprintf(name, sizeof name, "look: %0*d", HF_NAME_MAX + 1, 0);
    assert_int_equal(HF_EINVAL, users_file_allow(name, &allow, &err));
    assert_non_null(strstr(err.text, "more than 512 bytes"));
}

/* ---- names, passwords, connections ------------------------------------------------------------- */

static void names_of_users_are_strict(void **state)
{
    static const char *const good[] = {"alice", "default", "A.b_c@d-9", "-"};
    static const char *const bad[] = {"", "a b", "a:b", "a/b", "al\xc3\xafs", "a\n", "a=b", "#a"};
    char name[USERS_NAME_MAX + 2];
    struct error_text err;

    (void)state;
    for (size_t i = 0; i < COUNT(good); i++)
        assert_int_equal(HF_OK, users_file_name(good[i], NULL));
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_int_equal(HF_EINVAL, users_file_name(bad[i], NULL));
    snprintf(name, sizeof name, "%0*d", (int)USERS_NAME_MAX, 0);
    assert_int_equal(HF_OK, users_file_name(name, NULL));
    snprintf(name, sizeof name, "%0*d", (int)USERS_NAME_MAX + 1, 0);
    assert_int_equal(HF_EINVAL, users_file_name(name, &err));
    assert_non_null(strstr(err.text, "at most 64 letters"));
}

static void a_password_is_a_hash_and_never_shown(void **state)
{
    static const char *const bad[] = {
        "hunter2-hunter2", "$y$", "$", "$$x", "", "$y$hunter2 x", "$y$hun:ter2", "$y$hunter2\x01"};
    char hash[USERS_HASH_MAX + 2];
    struct error_text err;

    (void)state;
    assert_int_equal(HF_OK, users_file_hash(HASH, NULL));
    assert_int_equal(HF_OK, users_file_hash("$6$salt$hash", NULL));
    for (size_t i = 0; i < COUNT(bad); i++) {
        assert_int_equal(HF_EINVAL, users_file_hash(bad[i], &err));
        assert_null(strstr(err.text, "hun"));
        assert_non_null(strstr(err.text, "holdfast user password"));
    }
    snprintf(hash, sizeof hash, "$y$%0*d", (int)USERS_HASH_MAX - 3, 0);
    assert_int_equal(HF_OK, users_file_hash(hash, NULL));
    snprintf(hash, sizeof hash, "$y$%0*d", (int)USERS_HASH_MAX - 2, 0);
    assert_int_equal(HF_EINVAL, users_file_hash(hash, NULL));
}

static void connections_are_a_number(void **state)
{
    static const char *const bad[] = {"", "0", "-1", "1000001", "5x", "1e3"};
    uint32_t connections = 7;
    struct error_text err;

    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_int_equal(HF_EINVAL,
                         users_file_limit(USERS_CONNECTIONS, bad[i], &connections, &err));
    assert_int_equal(7, connections);
    assert_int_equal(HF_OK, users_file_limit(USERS_CONNECTIONS, "1", &connections, NULL));
    assert_int_equal(HF_OK, users_file_limit(USERS_CONNECTIONS, "1000000", &connections, NULL));
    assert_int_equal(1000000, connections);
}

static void limits_have_words_and_maxima(void **state)
{
    static const char *const words[] = {"connections", "leases", "holds", "places"};
    uint32_t number = 7;
    struct error_text err;

    (void)state;
    for (unsigned i = 0; i < USERS_LIMITS; i++) {
        enum users_kind kind = USERS_CONNECTIONS + i;

        assert_string_equal(words[i], users_file_word(kind));
        assert_int_equal(HF_EINVAL, users_file_limit(kind, "0", &number, &err));
        assert_non_null(strstr(err.text, words[i]));
        assert_int_equal(7, number);
    }
    assert_int_equal(HF_EINVAL, users_file_limit(USERS_LEASES, "8000001", &number, &err));
    assert_int_equal(HF_EINVAL, users_file_limit(USERS_HOLDS, "16000001", &number, &err));
    assert_int_equal(HF_OK, users_file_limit(USERS_PLACES, "16000000", &number, &err));
    assert_int_equal(16000000, number);
}

static void names_of_certificates_are_strict(void **state)
{
    char name[USERS_CERTIFICATE_MAX + 2];

    (void)state;
    assert_int_equal(HF_OK, users_file_certificate("spiffe://example.org/jobs/nightly", NULL));
    assert_int_equal(HF_OK, users_file_certificate("J\xc3\xb6rg M.", NULL));
    assert_int_equal(HF_EINVAL, users_file_certificate("", NULL));
    assert_int_equal(HF_EINVAL, users_file_certificate("a\tb", NULL));
    assert_int_equal(HF_EINVAL, users_file_certificate("*.example.org", NULL));
    snprintf(name, sizeof name, "%0*d", (int)USERS_CERTIFICATE_MAX, 0);
    assert_int_equal(HF_OK, users_file_certificate(name, NULL));
    snprintf(name, sizeof name, "%0*d", (int)USERS_CERTIFICATE_MAX + 1, 0);
    assert_int_equal(HF_EINVAL, users_file_certificate(name, NULL));
}

#define EIGHT_CERTIFICATES                                                                  \
    "certificate = a\ncertificate = b\ncertificate = c\ncertificate = d\ncertificate = e\n" \
    "certificate = f\ncertificate = g\ncertificate = h\n"

/* ---- whole files ------------------------------------------------------------------------------- */

struct seen {
    struct users_reader reader;
    char lines[512]; /* what was read, a word for each line */
};

static int take_line(void *context, const struct conf_line *conf, struct error_text *err)
{
    struct seen *seen = context;
    struct users_line line;
    size_t used = strlen(seen->lines);
    int result = users_file_take(&seen->reader, conf, &line, err);

    if (result != HF_OK)
        return result;
    switch (line.kind) {
    case USERS_USER:
        snprintf(seen->lines + used, sizeof seen->lines - used, "user %s;", line.value);
        break;
    case USERS_PASSWORD:
        snprintf(seen->lines + used, sizeof seen->lines - used, "password;");
        break;
    case USERS_RIGHTS:
        snprintf(seen->lines + used, sizeof seen->lines - used, "allow %u %zu;", line.allow.verbs,
                 line.allow.pattern_count);
        break;
    case USERS_CONNECTIONS:
    case USERS_LEASES:
    case USERS_HOLDS:
    case USERS_PLACES:
        snprintf(seen->lines + used, sizeof seen->lines - used, "%s %u;",
                 users_file_word(line.kind), line.number);
        break;
    case USERS_CERTIFICATE:
        snprintf(seen->lines + used, sizeof seen->lines - used, "certificate %s;", line.value);
        break;
    }
    return HF_OK;
}

static int read_text(const char *text, struct seen *seen, struct error_text *err)
{
    int fd = memfd_create("users", MFD_CLOEXEC), result;

    assert_true(fd >= 0);
    assert_int_equal((ssize_t)strlen(text), pwrite(fd, text, strlen(text), 0));
    memset(seen, 0, sizeof *seen);
    result = conf_read_max(fd, "users", USERS_FILE_MAX, HF_EREFUSED, take_line, seen, err);
    close(fd);
    return result;
}

static void a_file_is_read_in_its_order(void **state)
{
    static struct seen seen;
    static const char text[] =
        "# people\n\nuser = alice\npassword = " HASH "\npassword = " HASH
        "\nallow = acquire look: jobs/* reports/* # both\n"
        "allow = floor\nconnections = 50\n"
        "user = default\nuser = bob\nconnections = 1\ncertificate = bob.test\n"
        "certificate = urn:bob of the jobs\npassword = " HASH;

    (void)state;
    assert_int_equal(HF_OK, read_text(text, &seen, NULL));
    assert_string_equal("user alice;password;password;allow 3 2;allow 8 0;connections 50;"
                        "user default;user bob;connections 1;certificate bob.test;"
                        "certificate urn:bob of the jobs;password;",
                        seen.lines);
    assert_int_equal(3, seen.reader.count);
}

static void what_is_wrong_is_told_with_its_line(void **state)
{
    static const struct {
        const char *text, *why;
    } rows[] = {
        {"password = " HASH "\n", "users:1: password is nobody's: 'user = NAME' comes first"},
        {"user = a\n\nuser = b\nuser = a\n", "users:4: the user a is there twice"},
        {"user = a b\n", "users:1: 'a b' is no user's name"},
        {"user = a\npasword = x\n", "users:2: unknown name 'pasword': did you mean 'password'?"},
        {"user = a\ncolour = x\n", "users:2: unknown name 'colour': there are user, password"},
        {"user = a\npassword = secret\n", "users:2: the password is not in the form of crypt(5)"},
        {"user = a\npassword = " HASH "\npassword = " HASH "\npassword = " HASH "\n",
         "users:4: more than two passwords"},
        {"user = a\nallow = acquire look\nallow = lok\n", "users:3: unknown verb 'lok': did you"},
        {"certificate = a.test\n", "users:1: certificate is nobody's: 'user = NAME' comes first"},
        {"user = a\ncertificate = *.test\n", "users:2: the name of a certificate is no pattern"},
        {"user = a\n" EIGHT_CERTIFICATES "certificate = i\n", "users:10: more than 8 certificates"},
        {"user = a\nconnections = 0\n", "users:2: connections is a number from 1 to 1000000"},
        {"user = a\nconnections = 2\nconnections = 3\n", "users:3: connections is there twice"},
    };
    static struct seen seen;
    struct error_text err;

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_int_equal(HF_EINVAL, read_text(rows[i].text, &seen, &err));
        if (strncmp(err.text, rows[i].why, strlen(rows[i].why)) != 0)
            fail_msg("%s", err.text);
    }
}

/* Limits are those of a user, and begin anew with the next one; a line without patterns counts as one. */
static void patterns_are_counted_over_all_lines_of_a_user(void **state)
{
    static char text[2 * (16 + 16 * (USERS_GRANTS_MAX + 1))];
    static struct seen seen;
    struct error_text err;
    int length = 0;

    (void)state;
    for (int user = 0; user < 2; user++) {
        length += snprintf(text + length, sizeof text - (size_t)length, "user = u%d\n", user);
        for (unsigned i = 0; i < USERS_GRANTS_MAX; i++)
            length += snprintf(text + length, sizeof text - (size_t)length, "allow = look%s\n",
                               i % 2 == 0 ? ": a" : "");
    }
    assert_int_equal(HF_OK, read_text(text, &seen, &err));
    snprintf(text + length, sizeof text - (size_t)length, "allow = look\n");
    assert_int_equal(HF_EINVAL, read_text(text, &seen, &err));
    assert_string_equal("users:515: more than 256 patterns", err.text);
}

static void a_thousand_users_fit_and_no_more(void **state)
{
    static char text[(USERS_MAX + 1) * 128];
    static struct seen seen;
    struct error_text err;
    int length = 0;

    (void)state;
    for (unsigned i = 0; i < USERS_MAX; i++)
        length += snprintf(text + length, sizeof text - (size_t)length,
                           "user = u%u\npassword = " HASH "\n", i);
    assert_true(length > CONF_FILE_MAX); /* more than a configuration file may have */
    assert_int_equal(HF_OK, read_text(text, &seen, &err));
    assert_int_equal(USERS_MAX, seen.reader.count);
    snprintf(text + length, sizeof text - (size_t)length, "user = last\n");
    assert_int_equal(HF_EINVAL, read_text(text, &seen, &err));
    assert_string_equal("users:2001: more than 1000 users", err.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rights_are_verbs_and_patterns),
        cmocka_unit_test(verbs_are_the_bits_in_their_order),
        cmocka_unit_test(wrong_rights_are_told_in_words),
        cmocka_unit_test(rights_have_limits),
        cmocka_unit_test(names_of_users_are_strict),
        cmocka_unit_test(a_password_is_a_hash_and_never_shown),
        cmocka_unit_test(connections_are_a_number),
        cmocka_unit_test(limits_have_words_and_maxima),
        cmocka_unit_test(names_of_certificates_are_strict),
        cmocka_unit_test(a_file_is_read_in_its_order),
        cmocka_unit_test(what_is_wrong_is_told_with_its_line),
        cmocka_unit_test(patterns_are_counted_over_all_lines_of_a_user),
        cmocka_unit_test(a_thousand_users_fit_and_no_more),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
