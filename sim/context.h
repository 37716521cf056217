/* context.h: what a node's replica hands back to the simulator. */
#ifndef SIM_CONTEXT_H
#define SIM_CONTEXT_H

struct sim;
struct node;

struct node_context {
    struct sim *sim;
    struct node *node;
};

#endif
