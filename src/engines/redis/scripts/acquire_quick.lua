-- The usual case of acquire.lua, in as few steps as it can be done: exclusive, without a lock-delay;
-- nobody holds the name, nobody waits for it, nothing holds it back.
if ARGV[3] == 'x' and ARGV[5] == '0' and call('EXISTS', main, info, wait, ended) == 0 then
    local time, last = call('TIME'), tonumber(call('GET', counter) or 0)
    local now_us = time[1] * 1000000 + time[2]
    if last and last < 9007199254740991 then
        local token = string.format('%.0f', math.max(last + 1, now_us))
        local since = string.format('%.0f', math.floor(now_us / 1000))
        call('SET', counter, token)
        call('SET', main, ARGV[1], 'NX', 'PX', ARGV[2])
        call('HSET', info, ARGV[1], token .. ' ' .. since .. ' 0 ' .. ARGV[6])
        call('PEXPIRE', info, ARGV[2])
        call('PUBLISH', 'holdfast.change:' .. main, '')
        return {1, token}
    end
end
