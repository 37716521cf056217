#include "base/histogram.h"

/* From a commit on a fast disk to a minute in a queue. */
const uint32_t histogram_bounds_us[HISTOGRAM_BOUNDS] = {
    100,    250,    500,    1000,    2500,    5000,    10000,    25000,    50000,
    100000, 250000, 500000, 1000000, 2500000, 5000000, 10000000, 30000000, 60000000};
