-- Redlock, the first round, on one node. ARGV: lease, ttl, owner.
-- Answers {1, last token, token of this lease ('0': none yet), the node's time in us}; {0, left}:
-- somebody else has it; {-1}: this lease is over.
local lease, ttl = ARGV[1], tonumber(ARGV[2])
local value = call('GET', main)

local function yes(token)
    return {1, string.format('%.0f', last_token()), token, string.format('%.0f', now_us)}
end

if value == lease then
    last_at_least(main, ttl)
    last_at_least(info, ttl)
    return yes(entry_of(lease) or '0')
end
if call('EXISTS', ended) == 1 then return {-1} end
if value then return {0, call('PTTL', main)} end
local back = held_back()
if back > 0 then return {0, back} end
call('SET', main, lease, 'NX', 'PX', ttl)
note_holder(lease, '0', now, 0, ARGV[3], ttl)
return yes('0')
