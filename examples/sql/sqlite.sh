#!/bin/sh
# sqlite.sh FILE: enter, read, decide, write, in one transaction of SQLite.
#
#     holdfast guard sql --dialect sqlite | sqlite3 -bail shop.db
#     holdfast run batch-4472 -- sh sqlite.sh shop.db
set -eu
exec sqlite3 -bail "$1" "
    BEGIN IMMEDIATE;
    INSERT INTO holdfast_enter(key, token) VALUES('batch:4472', $HOLDFAST_TOKEN);
    UPDATE batches SET state = 'done' WHERE id = 4472 AND state = 'open';
    COMMIT;"
