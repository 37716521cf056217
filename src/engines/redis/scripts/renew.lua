-- ARGV: lease, token ('0': not known), ttl, delay, owner, place ('': does not wait); of a once-record
-- also for how long the death of its runner is known.
-- Answers the ms left; -1: the lease is gone; -2: gone, and nobody holds the name; -3: gone, and withheld
-- after a break. Never shortens. The lock-delay is the one that it was taken with: whoever renews may be another process that knows of none.
local lease, ttl, delay, place = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[6]
local value = call('GET', main)

if ttl < 1 then error('a TTL below 1 ms would end the hold') end
if value == lease then
    local token, _, taken_with = entry_of(lease)
    delay = taken_with or delay
    if token == '0' then token = nil end -- a vote of Redlock whose seal did not arrive
    if token and ARGV[2] ~= '0' and token ~= ARGV[2] then return -1 end
    if not token and ARGV[2] ~= '0' then -- that, or lost by eviction or by hand
        raise_counter(ARGV[2])
        note_holder(lease, ARGV[2], now, delay, ARGV[5], ttl)
    end
    call('PEXPIRE', main, math.max(ttl, call('PTTL', main))) -- a first write, in any case
    last_at_least(info, ttl + delay)
    if delay > 0 then hold_back_until(now + ttl + delay) end
    if mark then keep_mark(token or ARGV[2], lease, ttl, tonumber(ARGV[7])) end
    return call('PTTL', main)
end
if value == '*shared' or (value and permits_of(value)) then
    expire_members()
    local token, _, taken_with = entry_of(lease)
    delay = taken_with or delay
    if call('ZSCORE', members, lease) and (ARGV[2] == '0' or token == ARGV[2]) then
        -- Changes nothing; but when memory is short, Redis allows ZADD only after a first write.
        call('PEXPIRE', members, math.max(1, call('PTTL', members)))
        note_member(lease, ttl, delay)
        last_at_least(info, ttl + delay)
        return math.floor(tonumber(call('ZSCORE', members, lease)) - now)
    end
end
if place ~= '' and call('ZSCORE', wait, place) then
    keep_place(place, ttl)
    return ttl
end
if value == '*broken' then return -3 end
return value and -1 or -2
