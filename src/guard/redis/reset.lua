-- Sets a mark, whatever it is now, to TOKEN; 0 forgets it. For operators, and written down first.
-- Answers what it was and what it is. The time in the log is for people: nothing decides by it.
local RESETS_MAX, WHY_MAX = 1000, 500
local problem = misuse(KEYS, ARGV, #KEYS == 2 and (#ARGV == 1 or #ARGV == 2),
    'reset 2 MARK ' .. LOG .. ' TOKEN [WHY]')
if problem then return problem end
local mark, log, to, why = KEYS[1], KEYS[2], ARGV[1], ARGV[2] or ''
if not begins(log, LOG) then
    return wrong("the second key must be the log's, '%s', and is '%s'", LOG, shown(log))
end
if to ~= '0' and not is_token(to) then
    return wrong("a mark is 0 or a number up to %.0f, in digits, and not '%s'", TOKEN_MAX, shown(to))
end
if #why > WHY_MAX then return wrong('the reason is too long: at most %d bytes', WHY_MAX) end
local old = redis.pcall('GET', mark)
if type(old) == 'table' then old = 'a ' .. redis.call('TYPE', mark).ok end
old = shown(old or '0')
redis.call('XADD', log, 'MAXLEN', RESETS_MAX, '*', 'mark', mark, 'old', old, 'new', to, 'why', why)
if to == '0' then redis.call('DEL', mark) else redis.call('SET', mark, to) end
return {old, to}
