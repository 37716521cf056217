#!/bin/sh
# ticket.sh [FOLDER]: the last ticket, and ten buyers. One sale, nine refusals.
#
# No lock is needed for what one statement can say: take one if there is one.
set -eu
cd "${1:-$(mktemp -d)}"
sqlite3 shop.db 'CREATE TABLE tickets(event TEXT PRIMARY KEY, left_over INTEGER); INSERT INTO tickets VALUES ("ball", 1);
CREATE TABLE sales(event TEXT, buyer INTEGER);'

buy() { # BUYER
    sqlite3 -bail shop.db <<SQL
.timeout 10000
BEGIN IMMEDIATE;
UPDATE tickets SET left_over = left_over - 1 WHERE event = 'ball' AND left_over > 0;
INSERT INTO sales SELECT 'ball', $1 WHERE changes() = 1;
SELECT CASE changes() WHEN 1 THEN 'sold' ELSE 'refused' END;
COMMIT;
SQL
}

buyers=
for buyer in 1 2 3 4 5 6 7 8 9 10; do
    buy $buyer >"answer.$buyer" &
    buyers="$buyers $!"
done
for buyer in $buyers; do wait "$buyer"; done
echo "sales: $(cat answer.* | grep -c sold)"
echo "refusals: $(cat answer.* | grep -c refused)"
