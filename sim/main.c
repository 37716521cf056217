/* main.c: holdfast-sim: runs seeds, and says which of them went wrong. */
#include "base/switches.h"
#include "sim/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: holdfast-sim [--seed N] [--seeds N] [--jobs N] [--trace] [--hash] [--again] "
    "[--outside] [--stop] [--switch NAME] [--switches]\n"
    "  --seed N       the first one (1)\n"
    "  --seeds N      how many, from there on (1)\n"
    "  --jobs N       processes (1)\n"
    "  --trace        prints everything that happens; of one seed\n"
    "  --hash         prints the hash of each seed's trace\n"
    "  --again        runs each seed twice, and compares the traces\n"
    "  --outside      nodes do not look for contradictions in themselves: only the checkers judge\n"
    "  --stop         no further seed once one is wrong\n"
    "  --switch NAME  puts a known fault back into the code\n"
    "  --switches     prints these: name, room, what is wrong\n"
    "Exit status: 0, nothing is wrong; 1, something is; 64, not understood.\n";

static int misused(void)
{
    fputs(usage, stderr);
    return 64;
}

static bool number_of(const char *text, uint64_t *ret_number)
{
    char *end;

    if (!text || text[0] < '0' || text[0] > '9')
        return false;
    *ret_number = strtoull(text, &end, 10);
    return *end == '\0';
}

int main(int argc, char **argv)
{
    struct run run = {.first = 1, .count = 1, .jobs = 1};
    uint64_t jobs = 1;

    for (int i = 1; i < argc; i++) {
        const char *word = argv[i] ? argv[i] : "";
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        bool took = true;

        if (strcmp(word, "--seed") == 0 && number_of(value, &run.first))
            i++;
        else if (strcmp(word, "--seeds") == 0 && number_of(value, &run.count))
            i++;
        else if (strcmp(word, "--jobs") == 0 && number_of(value, &jobs))
            i++;
        else if (strcmp(word, "--switch") == 0 && value && switch_set(value))
            run.switch_name = argv[++i];
        else if (strcmp(word, "--switches") == 0) {
            switches_print();
            return 0;
        } else if (strcmp(word, "--trace") == 0)
            run.trace = true;
        else if (strcmp(word, "--outside") == 0)
            run.outside = true;
        else if (strcmp(word, "--again") == 0)
            run.again = true;
        else if (strcmp(word, "--stop") == 0)
            run.stop = true;
        else if (strcmp(word, "--hash") == 0)
            run.hash = true;
        else
            took = false;
        if (!took)
            return misused();
    }
    if (run.count < 1 || jobs < 1 || jobs > RUN_JOBS_MAX || (run.trace && run.count > 1))
        return misused();
    run.jobs = (int)jobs;
    run.program = argv[0];
    return run_all(&run) ? 0 : 1;
}
