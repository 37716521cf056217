/* fake.h: a server that says what a test wants it to say. It speaks enough RESP to be asked, on a thread
 * of its own, and shares no code with what is tested. */
#ifndef TESTS_HOLDFAST_FAKE_H
#define TESTS_HOLDFAST_FAKE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#define FAKE_WORDS_MAX 64
#define FAKE_WORD_MAX 128
#define FAKE_REPLY_MAX 4096
#define FAKE_CONNECTIONS_MAX 16
#define FAKE_SEEN_MAX 8192

/* One command. Words that are longer are cut. */
struct fake_command {
    int count;
    char words[FAKE_WORDS_MAX][FAKE_WORD_MAX];
};

enum fake_verdict { FAKE_ANSWERS, FAKE_IS_SILENT, FAKE_HANGS_UP };

struct fake;
/* What to answer: RESP into ret_reply. On the fake's thread, with its mutex. */
typedef enum fake_verdict fake_script(struct fake *fake, const struct fake_command *command,
                                      char ret_reply[FAKE_REPLY_MAX]);

struct fake {
    int port;
    fake_script *script;
    void *context;       /* the script's */
    bool deaf;           /* says nothing to HELLO either; set before fake_start */
    int slow_ms;         /* that it takes for each HELLO, one after the other */
    const char *hello;   /* what it calls itself; NULL: holdfast */
    const char *role;    /* that it says it has; NULL: it says nothing of that */
    const char *cluster; /* that it says it belongs to; NULL: the one of all others; "": none */

    pthread_mutex_t mutex; /* of all below */
    pthread_cond_t changed;
    int accepted;              /* connections so far */
    struct fake_command *seen; /* all commands but HELLO, in order */
    int seen_count;

    /* The thread's. */
    pthread_t thread;
    int listener, wake[2];
    struct fake_connection *connections[FAKE_CONNECTIONS_MAX];
};

/* For scripts: answers with this text, */
enum fake_verdict fake_reply(char ret_reply[FAKE_REPLY_MAX], const char *text);
bool fake_is(const struct fake_command *command, const char *word);
/* or like a server that has nothing special to say: an ACQUIRE gets the token 7. */
enum fake_verdict fake_usual(const struct fake_command *command, char ret_reply[FAKE_REPLY_MAX]);
fake_script fake_obliging;
/* Hangs up instead of answering the first command that begins like the context, a text; then the usual. */
fake_script fake_hangs_up_once;

void fake_start(struct fake *fake);
void fake_stop(struct fake *fake);
/* How many connections were made so far. */
int fake_accepted(struct fake *fake);
/* How many commands began with this word so far. */
int fake_count(struct fake *fake, const char *word);
/* Until there are so many, or the test fails. */
void fake_await(struct fake *fake, const char *word, int count);
/* The index-th command that begins with this word, copied; fails the test if there is none. */
struct fake_command fake_command(struct fake *fake, const char *word, int index);
/* Is there this word in it? */
bool fake_has(const struct fake_command *command, const char *word);
/* Until no connection to it is left open, or the test fails. */
void fake_await_left(struct fake *fake);
/* Says this on all connections, as a push would be. */
void fake_say(struct fake *fake, const char *bytes);

#endif
