#!/bin/sh
# balance.sh [FOLDER]: a balance of 100; one takes 30, one takes 50, and both read before either writes. It comes to 20.
#
# Each takes the lock, enters the guard, reads, thinks, and writes what it worked out, in one transaction. Then it is said
# with a version column, which needs no lock: whoever finds that the row is not the one it read tries again.
set -eu
second=${SECOND:-1}

balance() { sqlite3 bank.db "SELECT balance FROM accounts WHERE id = $1"; }

if [ "${1:-}" = --take ]; then # under the lock
    exec sqlite3 -bail bank.db <<SQL
.timeout 10000
BEGIN IMMEDIATE;
INSERT INTO holdfast_enter(key, token) VALUES ('account:1', $HOLDFAST_TOKEN);
CREATE TEMP TABLE was AS SELECT balance FROM accounts WHERE id = 1;
.shell sleep $second
UPDATE accounts SET balance = (SELECT balance FROM was) - $2 WHERE id = 1;
COMMIT;
SQL
fi

compare_and_set() { # AMOUNT
    for try in 1 2 3 4 5 6 7 8 9 10; do
        read -r balance version <<ROW
$(sqlite3 -separator ' ' bank.db 'SELECT balance, version FROM accounts WHERE id = 2')
ROW
        sleep "$second"
        changed=$(sqlite3 bank.db ".timeout 10000" "UPDATE accounts SET balance = $((balance - $1)), version = version + 1
            WHERE id = 2 AND version = $version; SELECT changes()")
        [ "$changed" = 1 ] && return
        echo "try $try to take $1 came too late"
        sleep "0.0$(shuf -i 1-99 -n 1)" # each after a time of its own
    done
    return 1
}

me=$(realpath "$0")
cd "${1:-$(mktemp -d)}"
holdfast guard sql --dialect sqlite | sqlite3 -bail bank.db
sqlite3 bank.db 'CREATE TABLE accounts(id INTEGER PRIMARY KEY, balance INTEGER, version INTEGER);
INSERT INTO accounts VALUES (1, 100, 1), (2, 100, 1);'
holdfast run account:1 -- "$me" --take 30 &
holdfast run account:1 -- "$me" --take 50
wait
echo "with a lock and a guard: $(balance 1)"
compare_and_set 30 &
compare_and_set 50
wait
echo "with a version column: $(balance 2)"
