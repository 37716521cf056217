#!/bin/sh
# withdraw.sh AMOUNT: takes AMOUNT from the key 'balance', under a lock, with its token:
#
#     holdfast guard redis | redis-cli -x FUNCTION LOAD REPLACE          # once
#     holdfast run balance -- ./withdraw.sh 30
#
# Enter before you read: from then on nobody with an older token can write. If somebody newer has
# been here, either call fails with STALE, and so does this script.
set -eu
mark='holdfast.mark:{balance}'
redis-cli -e FCALL holdfast_enter 1 "$mark" "$HOLDFAST_TOKEN" not-older
balance=$(redis-cli -e GET balance)
redis-cli -e FCALL holdfast_set 2 "$mark" balance "$HOLDFAST_TOKEN" not-older $((balance - $1))
