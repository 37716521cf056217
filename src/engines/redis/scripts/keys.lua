-- keys.lua: begins every script. docs/redis-store.md draws the keys.
--
-- main     a string: the lease of an exclusive holder, or '*shared', '*permits:N', '*broken'. It is
--          there exactly while the name is held, so a client of the plain recipe
--          (SET name value NX PX) and we keep each other out.
-- info     a hash, lease -> 'token since delay owner' of each holder. It outlives main by the
--          lock-delay: its field '*back' says until when the name is held back after an expiry.
-- members  a sorted set, lease -> when it runs out, of shared holders and of holders of permits.
-- wait     a sorted set, place -> order of arrival; due: place -> when that place runs out.
-- turn     the place that was told to try: for TURN_MS nobody overtakes it.
-- counter  the last token. ended: there if this lease is over; 'broken' if an operator has ended it.
--
-- The key of a once-record has these, too, under names of their own, and two more:
-- record   a string, 'token result': what came out, for as long as it is kept.
-- mark     ("runner:") a string, 'token lease' of whoever runs it. It outlives main: then that one has died.
local main, info, wait, due, members, turn, counter, ended = KEYS[1], KEYS[2], KEYS[3], KEYS[4],
    KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local record, mark = KEYS[9], KEYS[10]
local call = redis.call
