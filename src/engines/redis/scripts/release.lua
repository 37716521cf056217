-- ARGV: lease, token, remember (ms for which a late acquisition by this lease is refused; 0: not).
-- Answers 1 if that hold was given up, 0 if there was none: nothing newer is touched; -2: an operator had broken it.
local given_up = let_go(ARGV[1], ARGV[2])
if given_up == 0 and call('GET', ended) == 'broken' then return -2 end
if tonumber(ARGV[3]) > 0 then call('SET', ended, '1', 'PX', ARGV[3]) end
return given_up
