#!/bin/sh
# leader.sh [FOLDER]: two copies of a service, one of which leads; it dies. Exactly one leads, and whoever watches is told.
# $TTL: how long the store waits for a leader that is dead, if not as long as usual.
set -eu
cd "${1:-$(mktemp -d)}"

wait_for() { # TEXT FILE
    tries=0
    until grep -q "$1" "$2" 2>/dev/null; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || { echo "no '$1' in $2" >&2; exit 1; }
        sleep 0.1
    done
}

holdfast leader --follow service >seen &
watcher=$!
holdfast elect ${TTL:+--ttl "$TTL"} service -- sh -c 'echo one >>leads; exec sleep 1000' &
one=$!
wait_for one leads
holdfast elect ${TTL:+--ttl "$TTL"} service -- sh -c 'echo two >>leads; exec sleep 1000' &
two=$!
wait_for "$one" seen
[ "$(wc -l <leads)" = 1 ]
kill -9 "$one"
wait_for two leads
wait_for "$two" seen
kill "$two" "$watcher"
wait || true
echo "led, one after the other: $(tr '\n' ' ' <leads)"
