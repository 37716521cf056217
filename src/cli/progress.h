/* progress.h: a line on stderr about a call that takes longer than people like to wait without a word. (Reports of a
 * job's progress: heartbeat.h.) */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <pthread.h>
#include <stdbool.h>

struct progress_line {
    const char *text;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t ended;
    bool runs, over;
};

/* `text` is said after a second, unless progress_end comes first. The line is a courtesy: nothing of this fails. */
void progress_begin(struct progress_line *line, const char *text);
void progress_end(struct progress_line *line);

#endif
