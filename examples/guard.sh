#!/bin/sh
# guard.sh FILE TOKEN TEXT: appends TEXT to FILE, unless somebody with a newer TOKEN has been here before.
# The highest token seen lives in FILE.token; looking and writing are one step, under FILE.lock.
set -eu
exec 9>>"$1.lock"
flock 9
highest=$(cat "$1.token" 2>/dev/null || echo 0)
if [ "$2" -lt "$highest" ]; then
    echo "guard: refused: token $2 is older than $highest" >&2
    exit 1
fi
echo "$2" >"$1.token.new"
sync "$1.token.new"
mv "$1.token.new" "$1.token"
printf '%s\n' "$3" >>"$1"
