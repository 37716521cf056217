#!/bin/sh
# tools/try.sh BUILD: a first minute with holdfast, on the file store and on three servers, in folders of its own that are
# removed afterwards. Checks what it shows: exit status 1 if anything came out otherwise.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "${1:-$root/build}" && pwd)
PATH=$build/src/cli:$root/examples:$PATH
[ -x "$build/src/cli/holdfast" ] || { echo "try: $build/src/cli/holdfast is not built: run make" >&2; exit 1; }

# Below the build directory, so that it is on a disk: the file store refuses memory that a reboot forgets.
play=$(mktemp -d "$build/try.XXXXXX")
holder=
job=

clean_up() {
    for process in $holder; do
        kill -s KILL "$process" 2>/dev/null || true
    done
    for group in $job; do
        kill -s KILL -- "-$group" 2>/dev/null || true
    done
    rm -rf "$play"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

fail() {
    echo "try: $1" >&2
    exit 1
}

until_there() { # FILE: waits for it, five seconds at most
    tries=0
    until [ -s "$1" ]; do
        tries=$((tries + 1))
        [ "$tries" -le 100 ] || fail "waited in vain for $1"
        sleep 0.05
    done
}

HOLDFAST_URL=file:$(printf %s "$play/store" | sed 's/%/%25/g; s/?/%3F/g; s/#/%23/g; s/ /%20/g')
export HOLDFAST_URL play

# ------------------------------------------------------------------------------------------------
cat <<'EOF'

1. Two jobs, one lock. Both start now, each works for a second:

       holdfast run nightly -- ./job

EOF
# shellcheck disable=SC2016 # for the shell of the job
work='
    echo "   job $0 begins, token $HOLDFAST_TOKEN" | tee -a "$play/log"
    sleep 1
    echo "   job $0 ends" | tee -a "$play/log"'
holdfast run nightly -- sh -c "$work" A &
first=$!
holdfast run nightly -- sh -c "$work" B &
second=$!
wait "$first" || fail 'job A failed'
wait "$second" || fail 'job B failed'

# Never two inside at once, and the second token is greater.
awk '/begins/ { if (inside++) exit 1; if ($NF <= token) exit 1; token = $NF; jobs++ }
     /ends/ { inside-- }
     END { if (inside || jobs != 2) exit 1 }' "$play/log" || fail 'the jobs got into each other'
echo
echo '   One waited for the other. Every grant carries a token, greater than all before it.'
echo '   They are large because a new store begins at the clock, in microseconds.'

# ------------------------------------------------------------------------------------------------
cat <<'EOF'

2. A lock alone does not protect. A third job takes the lock, and is stopped in the middle of its
   work: a suspended machine, a long garbage collection, here kill -STOP.

EOF
# shellcheck disable=SC2016
holdfast run nightly -- sh -c '
    echo "$HOLDFAST_TOKEN" >"$play/paused.token"
    echo "$$" >"$play/paused.pid"
    until [ -e "$play/go" ]; do sleep 0.05; done
    if guard.sh "$play/ledger" "$HOLDFAST_TOKEN" "written by the paused job" 2>"$play/refusal"; then
        echo accepted >"$play/verdict"
    else
        echo refused >"$play/verdict"
    fi' &
holder=$!
until_there "$play/paused.pid"
job=$(cat "$play/paused.pid")
paused_token=$(cat "$play/paused.token")
kill -s STOP "$holder"
kill -s STOP -- "-$job"
echo "   the job holds the lock with token $paused_token, and is stopped"
holdfast show nightly | sed 's/^/       /'
echo
echo '   An operator takes the lock away from it:'
echo
echo '       holdfast break --grace 500ms nightly'
echo
holdfast break --grace 500ms nightly >"$play/break" || fail 'holdfast break failed'
fold -s -w 92 "$play/break" | sed 's/^/       /'
echo
# shellcheck disable=SC2016
holdfast run --wait 5s nightly -- sh -c '
    echo "$HOLDFAST_TOKEN" >"$play/next.token"
    guard.sh "$play/ledger" "$HOLDFAST_TOKEN" "written by the next job"' || fail 'the next job failed'
next_token=$(cat "$play/next.token")
echo "   the next job gets token $next_token, and writes to the ledger through a guard"
echo
echo '   The stopped job wakes up, knows of nothing, and writes:'
echo
touch "$play/go"
kill -s CONT -- "-$job"
until_there "$play/verdict"
sed 's/^/       /' "$play/refusal"
kill -s CONT "$holder"
status=0
wait "$holder" || status=$?
holder=
job=

[ "$(cat "$play/verdict")" = refused ] || fail 'the late write went through'
[ "$next_token" -gt "$paused_token" ] || fail 'the token did not grow'
[ "$(cat "$play/ledger")" = 'written by the next job' ] || fail 'the ledger is wrong'
[ "$status" = 76 ] || fail "the stopped holdfast ended with $status, not with 76 (lost)"
cat <<EOF

   The ledger has only what the next job wrote. Its guard is $(grep -vc '^#' "$root/examples/guard.sh") lines of shell: examples/guard.sh
   The stopped holdfast itself found its lock lost, and ended with exit status 76.
EOF

# ------------------------------------------------------------------------------------------------
if [ -x "$build/src/server/holdfastd" ]; then
    cat <<'EOF'

3. Several machines. Three holdfastd, here on one machine, keep one table of locks; one of them leads.
   A job works under a lock of theirs:

EOF
    "$root/tools/cluster" --show "$build" || exit
else
    cat <<'EOF'

3. Several machines: holdfastd was not built, because libuv is not here. tools/setup try installs it.
EOF
fi
cat <<EOF

Try it yourself:

    PATH=$build/src/cli:\$PATH
    holdfast run NAME -- COMMAND
    make cluster         # three servers to play with

README.md has the rest of the tour. All went as it should.
EOF
