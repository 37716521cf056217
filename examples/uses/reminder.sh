#!/bin/sh
# reminder.sh [FOLDER]: two hosts send the reminder at six o'clock; their clocks are two seconds apart. One mail.
#
# The job takes a second, so when the second host comes the first one is done, and the lock is free again: unless it is
# kept for longer than clocks differ (here six seconds; ten minutes would be usual). -n: whoever is late has nothing to
# do; 75 says so.
set -eu
second=${SECOND:-1} # less, for the impatient
seconds() { awk "BEGIN { print $1 * $second }"; }
cd "${1:-$(mktemp -d)}"

host() { # NAME SECONDS-LATE
    sleep "$(seconds "$2")"
    status=0
    holdfast run -n --hold-at-least "$(seconds 6)s" reminder -- \
        sh -c "sleep $second; echo 'reminder from $1' >>mails" || status=$?
    [ "$status" = 0 ] || [ "$status" = 75 ]
}

: >mails
host a 0 &
host b 2
echo "mails: $(wc -l <mails)"
wait
