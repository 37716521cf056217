-- The usual case of release.lua: an exclusive hold with that token, no answer was ever lost, and
-- nobody waits; of a lock.
if not mark and ARGV[3] == '0' and call('GET', main) == ARGV[1] and call('EXISTS', wait) == 0 then
    local entry = call('HGET', info, ARGV[1])
    if entry and string.sub(entry, 1, #ARGV[2] + 1) == ARGV[2] .. ' ' then
        call('DEL', main, info)
        call('PUBLISH', 'holdfast.change:' .. main, '')
        return 1
    end
end
