-- Claims the key of a once-record. ARGV: lease, ttl, owner, place ('': takes no place in the queue), no_heir
-- (1: if its runner died, says so instead of running), death (ms for which our own death is known; 0: not at
-- all). Answers as acquire.lua; or {3, token, result}: it is done; {4, token}: its runner died. After
-- these two the lease has no place.
local lease, ttl, owner, place = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local no_heir, death = ARGV[5] == '1', tonumber(ARGV[6])

local done, result = kept_result()
if done then
    leave_for_good(place)
    return {3, done, result}
end

local value = call('GET', main)
if value == lease then -- asked again: the same answer
    local token = entry_of(lease)
    if not token then
        token = next_token()
        note_holder(lease, token, now, 0, owner, ttl)
    end
    last_at_least(main, ttl)
    last_at_least(info, ttl)
    keep_mark(token, lease, ttl, death)
    return {1, token}
end
if call('EXISTS', ended) == 1 then return {-1} end
if value then return queue_up(place, ttl, call('PTTL', main), 1) end

local dead, whose = mark_of()
if whose == lease then return {-1} end -- we had it, did not hear of it, and it ran out
if dead and no_heir then
    leave_for_good(place) -- others look by themselves, now that the lease has run out
    return {4, dead}
end
local kept = kept_for_another(place)
if kept then return queue_up(place, ttl, kept, 1) end

local token = next_token()
call('DEL', info, mark)
call('SET', main, lease, 'NX', 'PX', ttl)
note_holder(lease, token, now, 0, owner, ttl)
keep_mark(token, lease, ttl, death)
leave_for_good(place)
return {1, token}
