#!/bin/sh
# settlement.sh [FOLDER]: batch 4472 is settled by one pod; a second one starts while the first is at work. One debit.
#
# The lock keeps the second pod waiting, so no work is done twice. The guard makes it certain: each enters with its token
# before it looks whether there is anything left to do, in the transaction in which it debits.
set -eu
second=${SECOND:-1} # less, for the impatient
seconds() { awk "BEGIN { print $1 * $second }"; }

if [ "${1:-}" = --settle ]; then # under the lock
    echo "pod $2 settles with token $HOLDFAST_TOKEN"
    sleep "$(seconds 8)"
    sqlite3 -bail bank.db <<SQL
.timeout 10000
BEGIN IMMEDIATE;
INSERT INTO holdfast_enter(key, token) VALUES ('batch:4472', $HOLDFAST_TOKEN);
INSERT INTO debits SELECT 4472, 'pod $2' WHERE NOT EXISTS (SELECT 1 FROM debits WHERE batch = 4472);
COMMIT;
SQL
    exit
fi

me=$(realpath "$0")
cd "${1:-$(mktemp -d)}"
holdfast guard sql --dialect sqlite | sqlite3 -bail bank.db
sqlite3 bank.db 'CREATE TABLE debits(batch INTEGER, by TEXT);'
holdfast run batch:4472 -- "$me" --settle one &
sleep "$(seconds 4)"
holdfast run batch:4472 -- "$me" --settle two
wait
echo "debits: $(sqlite3 bank.db 'SELECT count(*) FROM debits')"
