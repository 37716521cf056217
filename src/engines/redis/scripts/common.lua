-- common.lua: what the scripts share; goes between keys.lua and each of them. To define all this
-- costs Redis more than a usual acquisition does; so what can be decided without it comes before it,
-- in acquire_quick.lua and release_quick.lua.
local TURN_MS, SLACK_MS, TOKEN_MAX = 200, 60000, 9007199254740991
local time = call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now = math.floor(now_us / 1000)

-- A key outlives what is already promised of it.
local function last_at_least(key, ms)
    if call('PTTL', key) < ms then call('PEXPIRE', key, ms) end
end

local function entry_of(lease)
    local entry = call('HGET', info, lease)
    if not entry then return nil end
    local token, since, delay, owner = string.match(entry, '^(%d+) (%d+) (%d+) (.*)$')
    return token, tonumber(since), tonumber(delay), owner
end

local function last_token()
    local last = call('GET', counter)
    if last and not tonumber(last) then error('the token counter is not a number') end
    return tonumber(last or 0)
end

local function raise_counter(token)
    if last_token() < tonumber(token) then call('SET', counter, token) end
end

-- Wall time, and only upwards: a counter that was lost does not begin again at 1.
local function next_token()
    local token = math.max(last_token() + 1, now_us)
    if token > TOKEN_MAX then error('there are no tokens left') end
    token = string.format('%.0f', token)
    call('SET', counter, token)
    return token
end

-- Writes down who holds; `back` only where there is a lock-delay, so that the usual grant is cheap.
local function note_holder(lease, token, since, delay, owner, ttl)
    local entry = token .. ' ' .. string.format('%.0f', since) .. ' ' .. delay .. ' ' .. owner
    call('HSET', info, lease, entry)
    last_at_least(info, ttl + delay)
end

local function changed()
    call('PUBLISH', 'holdfast.change:' .. main, '')
end

local function hold_back_until(back)
    if back > tonumber(call('HGET', info, '*back') or 0) then
        call('HSET', info, '*back', string.format('%.0f', back))
    end
end

-- Shared holders and permits: those whose time is over go, and leave their lock-delay behind.
local function expire_members()
    for _, lease in ipairs(call('ZRANGEBYSCORE', members, '-inf', now)) do
        local _, _, delay = entry_of(lease)
        if delay and delay > 0 then
            hold_back_until(tonumber(call('ZSCORE', members, lease)) + delay)
        end
        call('ZREM', members, lease)
        call('HDEL', info, lease)
    end
    if call('ZCARD', members) == 0 then call('DEL', main) end
end

-- With main gone: for how many ms the name is still held back. Forgets what is over.
local function held_back()
    if call('HLEN', info) == 0 then return 0 end
    if call('EXISTS', members) == 1 then expire_members() end
    local back = tonumber(call('HGET', info, '*back') or 0)
    if back > now then return math.ceil(back - now) end
    call('DEL', info, members)
    return 0
end

-- After a member came, went or was renewed: main lasts as long as the longest of them.
local function settle_members()
    local last = call('ZRANGE', members, -1, -1, 'WITHSCORES')
    if last[2] then
        call('PEXPIRE', main, math.max(1, math.ceil(tonumber(last[2]) - now)))
        return
    end
    call('DEL', main)
    held_back()
end

local function note_member(lease, ttl, delay)
    local before = tonumber(call('ZSCORE', members, lease) or 0)
    call('ZADD', members, math.max(before, now + ttl), lease)
    last_at_least(members, ttl + delay)
    settle_members()
end

local function permits_of(value)
    return tonumber(string.match(value, '^%*permits:(%d+)$') or '')
end

local function leave_queue(place)
    call('ZREM', due, place)
    return call('ZREM', wait, place)
end

-- The same for a place whose turn it may be.
local function leave_for_good(place)
    if leave_queue(place) == 1 and call('GET', turn) == place then call('DEL', turn) end
end

-- A place lasts for another ttl.
local function keep_place(place, ttl)
    call('ZADD', due, now + ttl, place)
    last_at_least(wait, ttl + SLACK_MS)
    last_at_least(due, ttl + SLACK_MS)
end

-- The answer to who cannot have it: busy, without a place or with one.
local function queue_up(place, ttl, left, told)
    if place == '' then return {0, left, told} end
    call('ZADD', wait, 'NX', now_us, place)
    keep_place(place, ttl)
    return {2, left, told}
end

-- Has somebody else been told that it is his turn? Then for how long.
local function kept_for_another(place)
    if call('ZCARD', wait) == 0 then return nil end
    local whose = call('GET', turn)
    if whose and whose ~= place then return call('PTTL', turn) end
    return nil
end

-- 'mode:client:claim:owner'
local function client_of(place)
    return string.match(place, '^(.):([^:]*):(%d+):')
end

-- The first who waits and still lives. One whose client is not connected lives no longer.
local function first_waiter()
    for _, place in ipairs(call('ZRANGEBYSCORE', due, '-inf', now)) do leave_queue(place) end
    while true do
        local place = call('ZRANGE', wait, 0, 0)[1]
        if not place then return nil end
        local mode, client = client_of(place)
        if mode and call('PUBSUB', 'NUMSUB', 'holdfast.wake:' .. client)[2] > 0 then
            return place, mode
        end
        leave_queue(place)
    end
end

-- Tells exactly one, the first who can have it.
local function wake()
    if call('ZCARD', wait) == 0 then return end
    local value = call('GET', main)
    if not value and held_back() > 0 then return end
    local place, mode = first_waiter()
    if not place then return end
    local permits = value and permits_of(value)
    if not value or (value == '*shared' and mode == 's') or
        (permits and mode == 'p' and call('ZCARD', members) < permits) then
        local _, client, claim = client_of(place)
        call('SET', turn, place, 'PX', TURN_MS)
        call('PUBLISH', 'holdfast.wake:' .. client, claim)
    end
end

-- Of a once-record: token and lease of whoever runs it, or ran it when he died.
local function mark_of()
    return string.match(call('GET', mark) or '', '^(%d+) (.*)$')
end

-- That he died shall be known for `death` ms after his lease.
local function keep_mark(token, lease, ttl, death)
    if death > 0 and call('PTTL', mark) < ttl + death then
        call('SET', mark, token .. ' ' .. lease, 'PX', ttl + death)
    end
end

-- Of a once-record: the token and what came out, if it is done.
local function kept_result()
    local kept = call('GET', record)
    if not kept then return nil end
    local blank = string.find(kept, ' ', 1, true)
    if not blank then error('the record of this key is not one of ours') end
    return string.sub(kept, 1, blank - 1), string.sub(kept, blank + 1)
end

-- Ends the hold of a lease, if it has one and (token not '') that token. Tells the next.
local function let_go(lease, token)
    local value = call('GET', main)
    if not value then return 0 end
    local held = value == lease
    if not held and (value == '*shared' or permits_of(value)) then
        expire_members()
        held = call('ZSCORE', members, lease)
    end
    if not held then return 0 end
    local own = entry_of(lease)
    -- '0' is a vote of Redlock whose seal did not arrive.
    if token ~= '' and own and own ~= '0' and own ~= token then return 0 end
    if value == lease then
        call('DEL', main, info)
        if mark then call('DEL', mark) end
    else
        call('ZREM', members, lease)
        call('HDEL', info, lease)
        settle_members()
    end
    changed()
    wake()
    return 1
end
