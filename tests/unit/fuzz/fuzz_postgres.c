/* fuzz_postgres.c: fields of an answer of PostgreSQL, as libpq hands them out: numbers, texts and bytes in hex. The first byte of the
 * input says what is read; the rest is the field. What is taken prints back to the same. */
#include "engines/postgres/store.h"
#include "fuzz.h"

static PGresult *answer_with(const char *text)
{
    char name[] = "column";
    PGresAttDesc column = {.name = name, .typlen = -1};
    PGresult *answer = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    char *copy = strdup(text);

    REQUIRE(answer && copy && PQsetResultAttrs(answer, 1, &column));
    REQUIRE(PQsetvalue(answer, 0, 0, copy, (int)strlen(copy)));
    free(copy);
    return answer;
}

static void try_number(const PGresult *answer, const char *text)
{
    int64_t number = -7;
    char digits[32];

    if (!answer_number(answer, 0, 0, &number)) {
        REQUIRE(number == -7);
        return;
    }
    snprintf(digits, sizeof digits, "%lld", (long long)number);
    text += strspn(text, " \t\n\v\f\r+");
    text += *text == '-';
    text += strspn(text, "0");
    REQUIRE(strcmp(text, digits + (digits[0] == '-') + (number == 0)) == 0);
}

static void try_hex(const PGresult *answer, const char *text, size_t max)
{
    size_t size = 0;
    char *bytes = answer_hex(answer, 0, 0, max, &size);

    if (!bytes)
        return;
    REQUIRE(size <= max && size == strlen(text) / 2 && bytes[size] == '\0');
    for (size_t i = 0; i < size; i++) {
        char pair[3];

        snprintf(pair, sizeof pair, "%02x", (unsigned)(unsigned char)bytes[i]);
        REQUIRE(memcmp(pair, text + 2 * i, 2) == 0);
    }
    free(bytes);
}

const int fuzz_rounds = 200000;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    PGresult *answer;
    int64_t number;
    char *text;

    if (size < 1)
        return 0;
    text = fuzz_text(data + 1, size - 1);
    answer = answer_with(text);
    REQUIRE(strcmp(answer_text(answer, 0, 0), text) == 0);
    REQUIRE(!answer_text(answer, 1, 0)[0] && !answer_text(answer, 0, 1)[0]);
    REQUIRE(!answer_number(answer, 1, 0, &number) && !answer_number(answer, 0, 1, &number));
    if (data[0] % 2)
        try_number(answer, text);
    else
        try_hex(answer, text, data[0]);
    PQclear(answer);
    free(text);
    return 0;
}

size_t fuzz_seed(unsigned n, uint8_t ret_bytes[FUZZ_MAX])
{
    static const char *const texts[] = {
        "00ff1a", "42", "", "-9223372036854775808", "abcdef", "9007199254740991"};

    if (n >= COUNT(texts))
        return 0;
    ret_bytes[0] = (uint8_t)(100 + n);
    memcpy(ret_bytes + 1, texts[n], strlen(texts[n]));
    return 1 + strlen(texts[n]);
}
