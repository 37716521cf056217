#!/bin/sh
# cache.sh [FOLDER]: a page has gone out of the cache, and a hundred callers want it. One rebuild, a hundred answers.
set -eu
second=${SECOND:-1}
callers=${CALLERS:-100}
cd "${1:-$(mktemp -d)}"
# A store for this run: in one that is used again, the result of the last run would be kept.
export HOLDFAST_URL="${STORE:-file:store?allow=tmpfs}"
: >rebuilds
: >answers

i=0
while [ $i -lt "$callers" ]; do
    i=$((i + 1))
    holdfast once --keep 10s page:/ -- sh -c "sleep $second; echo rebuilt >>rebuilds; echo the page" >>answers &
done
wait
echo "rebuilds: $(wc -l <rebuilds)"
echo "answers: $(grep -c '^the page$' answers)"
