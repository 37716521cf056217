-- No lock at all: a version column. Where two meet seldom, and a loser may simply try again, this beats a lock.
-- The first statement reads; the second writes if nobody else has since. No row changed: read again, decide again.
-- Try a bounded number of times, and wait for a random time in between, longer each time: hf_retry_wait() does that.
SELECT balance, version FROM accounts WHERE id = :id;
UPDATE accounts SET balance = :balance, version = version + 1 WHERE id = :id AND version = :version;
