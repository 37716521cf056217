-- Stores what came out of a once-record, gives up the hold, and tells those who wait. ARGV: lease, token,
-- keep (ms), result. Answers 1, also if it did so before; 0: that token holds it no more, and nothing
-- was touched. Writes the record first: when memory is short, Redis refuses that, and it is still held.
local TOLD_MAX = 10000 -- who comes later looks by himself
local lease, token = ARGV[1], ARGV[2]

if kept_result() == token then return 1 end
local own = entry_of(lease)
if call('GET', main) ~= lease or (own and own ~= token) then return 0 end
call('SET', record, token .. ' ' .. ARGV[4], 'PX', ARGV[3])
call('DEL', main, info, mark, turn)
for _, place in ipairs(call('ZRANGE', wait, 0, TOLD_MAX - 1)) do
    local _, client, claim = client_of(place)
    if client then call('PUBLISH', 'holdfast.wake:' .. client, claim) end
end
return 1
