-- ARGV: lease, token, remember (ms for which a late acquisition by this lease is refused; 0: not).
-- Answers 1 if that hold was given up, 0 if there was none: nothing newer is touched.
local given_up = let_go(ARGV[1], ARGV[2])
if tonumber(ARGV[3]) > 0 then call('SET', ended, '1', 'PX', ARGV[3]) end
return given_up
