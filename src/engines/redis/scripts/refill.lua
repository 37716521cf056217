-- Redlock: a node that came back empty gets back what a majority still has. ARGV: lease, token, ttl,
-- owner. Answers 1, or 0 if somebody else is there or this lease is over.
if call('EXISTS', ended) == 1 or call('EXISTS', main) == 1 then return 0 end
raise_counter(ARGV[2])
call('SET', main, ARGV[1], 'NX', 'PX', ARGV[3])
note_holder(ARGV[1], ARGV[2], now, 0, ARGV[4], tonumber(ARGV[3]))
return 1
