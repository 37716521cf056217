-- Answers rows of {holder, withheld or waiter (h, b, w), mode, permits, lease, token, owner, age, left}, all text.
local rows = {}
local value = call('GET', main)

local function holder(mode, permits, lease, left)
    local token, since, _, owner = entry_of(lease)
    local age = since and now - since or -1
    rows[#rows + 1] = {'h', mode, tostring(permits), lease, token or '0', owner or '',
        string.format('%.0f', age), string.format('%.0f', left)}
end

if value == '*shared' or (value and permits_of(value)) then
    local permits = permits_of(value) or 0
    local found = call('ZRANGEBYSCORE', members, '(' .. now, '+inf', 'WITHSCORES')
    for i = 1, #found, 2 do
        holder(value == '*shared' and 's' or 'p', permits, found[i], tonumber(found[i + 1]) - now)
    end
elseif value and value ~= '*broken' then
    holder('x', 0, value, call('PTTL', main))
else -- after a break, or after a hold that ended with a lock-delay
    local left = value and call('PTTL', main) or tonumber(call('HGET', info, '*back') or 0) - now
    if left > 0 then
        rows[#rows + 1] = {'b', 'x', '0', '', '0', '', '-1', string.format('%.0f', left)}
    end
end
if ARGV[1] == 'all' then
    local found = call('ZRANGE', wait, 0, 999, 'WITHSCORES')
    for i = 1, #found, 2 do
        local mode, client = client_of(found[i])
        local ends = tonumber(call('ZSCORE', due, found[i]) or 0)
        if mode and ends > now and call('PUBSUB', 'NUMSUB', 'holdfast.wake:' .. client)[2] > 0 then
            rows[#rows + 1] = {'w', mode, '0', '', '0', string.match(found[i], '^.:[^:]*:%d+:(.*)$'),
                string.format('%.0f', math.max(0, now - math.floor(tonumber(found[i + 1]) / 1000))), '-1'}
        end
    end
end
return rows
