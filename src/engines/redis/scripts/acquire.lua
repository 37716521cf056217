-- ARGV: lease, ttl, mode (x, s or p), permits, delay, owner, place ('': takes no place in the queue).
-- Answers {1, token}: held; {0, left, told} or {2, left, told}: busy, without or with a place, for
-- `left` ms at most (-1: for ever), told: 1 if the end of that will be announced; {-1}: this lease is
-- over; {-2, words}: the name is in use in another way.
local lease, ttl, mode, permits = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local delay, owner, place = tonumber(ARGV[5]), ARGV[6], ARGV[7]

local function busy(left, told)
    return queue_up(place, ttl, left, told)
end

local function granted(token)
    if place ~= '' then leave_for_good(place) end
    changed()
    return {1, token}
end

local value = call('GET', main)

if value == lease then -- asked again: the same answer
    local token = entry_of(lease)
    if not token then
        token = next_token()
        note_holder(lease, token, now, delay, owner, ttl)
    end
    last_at_least(main, ttl)
    last_at_least(info, ttl + delay)
    if delay > 0 then hold_back_until(now + ttl + delay) end
    return {1, token}
end
if call('EXISTS', ended) == 1 then return {-1} end

if value == '*shared' or (value and permits_of(value)) then
    expire_members()
    if call('ZSCORE', members, lease) then
        local token = entry_of(lease)
        note_member(lease, ttl, delay)
        last_at_least(info, ttl + delay)
        return {1, token}
    end
    value = call('GET', main)
end
if value and (mode == 'p') ~= (permits_of(value) ~= nil) and value ~= '*broken' then
    return {-2, mode == 'p' and 'it is not a pool of permits' or 'it is a pool of permits'}
end
if value and mode == 'p' and permits_of(value) and permits_of(value) ~= permits then
    return {-2, 'it is a pool of ' .. permits_of(value) .. ' permits'}
end

local function grant_beside_others()
    local token = next_token()
    note_holder(lease, token, now, delay, owner, ttl)
    note_member(lease, ttl, delay)
    local answer = granted(token)
    wake() -- the next reader, or the next permit
    return answer
end

if not value then
    local back = held_back()
    if back > 0 then return busy(back, 1) end
    local kept = kept_for_another(place)
    if kept then return busy(kept, 1) end
    if mode ~= 'x' then
        call('SET', main, mode == 's' and '*shared' or '*permits:' .. permits, 'NX', 'PX', ttl)
        return grant_beside_others()
    end
    local token = next_token()
    call('SET', main, lease, 'NX', 'PX', ttl)
    note_holder(lease, token, now, delay, owner, ttl)
    if delay > 0 then hold_back_until(now + ttl + delay) end
    return granted(token)
end

if mode == 'x' or value == '*broken' or (mode == 's' and value ~= '*shared') then
    local ours = value == '*shared' or value == '*broken' or call('HEXISTS', info, value) == 1
    return busy(call('PTTL', main), ours and 1 or 0)
end

-- A shared hold beside others, or one of several permits.
local back = tonumber(call('HGET', info, '*back') or 0)
if back > now then return busy(math.ceil(back - now), 1) end
local kept = kept_for_another(place)
if kept then return busy(kept, 1) end
if mode == 's' and call('ZCARD', wait) > 0 then -- readers do not pass a writer who waits
    local first, first_mode = first_waiter()
    if first and first ~= place and first_mode == 'x' then return busy(call('PTTL', main), 1) end
end
if mode == 'p' and call('ZCARD', members) >= permits then
    local soonest = call('ZRANGE', members, 0, 0, 'WITHSCORES')
    return busy(math.max(1, math.ceil(tonumber(soonest[2]) - now)), 1)
end
return grant_beside_others()
