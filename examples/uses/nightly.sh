#!/bin/sh
# nightly.sh [FOLDER]: a job that usually takes five minutes, started on two hosts. It never runs twice at once; if the host
# that runs it dies, the other one takes over.
#
# On a store with TTLs the lock is renewed as long as the job runs, and free a TTL after its host has died. On files it is
# free at once. $TTL is the TTL, if it is not to be the store's.
set -eu
second=${SECOND:-1} # less, for the impatient
seconds() { awk "BEGIN { print $1 * $second }"; }

if [ "${1:-}" = --job ]; then
    exec 9>running
    flock -n 9 || echo "$2 runs beside another" >>log
    echo "$2 begins" >>log
    sleep "$(seconds 5)"
    echo "$2 ends" >>log
    exit
fi

me=$(realpath "$0")
cd "${1:-$(mktemp -d)}"
: >log
holdfast run ${TTL:+--ttl "$TTL"} nightly -- "$me" --job a &
a=$!
until grep -q 'a begins' log; do sleep 0.1; done
holdfast run ${TTL:+--ttl "$TTL"} nightly -- "$me" --job b &
b=$!
kill -9 "$a" # and the job dies with it
wait "$b"
cat log
