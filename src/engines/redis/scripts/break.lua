-- ARGV: grace. 0: the name is free at once. Else it is withheld until the holders' TTL and lock-delay
-- have run; holders without a TTL (of the plain recipe) are given the grace. Answers how many holds
-- were ended.
local grace = tonumber(ARGV[1])
local value = call('GET', main)
local count = 0
local over = {} -- lease, for how long its holder may ask; of holders that are ours
local function note_over(lease, left)
    if entry_of(lease) then over[#over + 1] = {lease, math.max(left, 0) + SLACK_MS} end
end

if value == '*shared' or (value and permits_of(value)) then
    expire_members()
    local found = call('ZRANGE', members, 0, -1, 'WITHSCORES')
    for i = 1, #found, 2 do
        local _, _, delay = entry_of(found[i])
        if delay and delay > 0 then hold_back_until(tonumber(found[i + 1]) + delay) end
        note_over(found[i], tonumber(found[i + 1]) - now)
    end
    count = #found / 2
    value = call('GET', main)
elseif value and value ~= '*broken' then
    count = 1
    note_over(value, call('PTTL', main))
end
if grace == 0 then
    call('DEL', main, info, members)
elseif value and value ~= '*broken' then
    local left = call('PTTL', main)
    if left < 0 then left = grace end
    left = math.max(left, tonumber(call('HGET', info, '*back') or 0) - now, 1)
    call('SET', main, '*broken', 'PX', string.format('%.0f', left))
    call('DEL', info, members)
end
-- Whoever releases, and asks twice because an answer was lost, is told what became of it. Last: when memory is short, Redis allows what comes after a first write.
for _, one in ipairs(over) do
    call('SET', ended .. one[1], 'broken', 'PX', string.format('%.0f', one[2]))
end
changed()
wake()
if grace > 0 then -- the first who waits learns for how long it still has to
    local place = call('ZCARD', wait) > 0 and first_waiter()
    if place then
        local _, client, claim = client_of(place)
        call('PUBLISH', 'holdfast.wake:' .. client, claim)
    end
end
return count
