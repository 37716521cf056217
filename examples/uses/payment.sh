#!/bin/sh
# payment.sh [FOLDER]: a caller does not hear the answer to a payment, and sends it again. One charge, the same answer.
#
# What came out of the first call is kept for a day under the caller's idempotency key; a call with that key that comes
# meanwhile waits for it, one that comes later is told at once.
set -eu

if [ "${1:-}" = --charge ]; then
    echo "order $2" >>charges
    echo "receipt $(od -An -N4 -tx4 /dev/urandom | tr -d ' ')"
    exit
fi

me=$(realpath "$0")
cd "${1:-$(mktemp -d)}"
# A store for this run: in one that is used again, the result of the last run would be kept.
export HOLDFAST_URL="${STORE:-file:store?allow=tmpfs}"
: >charges
pay() { holdfast once --keep 24h pay:order-4711 -- "$me" --charge 4711; }
pay >first &
pay >again
wait
pay >later
echo "charges: $(wc -l <charges)"
echo "answers: $(sort -u first again later | wc -l)"
