-- ARGV: token. Answers 1 if the hold with that token is alive, else 0.
local value = call('GET', main)
if not value or value == '*broken' then return 0 end
if value ~= '*shared' and not permits_of(value) then
    return entry_of(value) == ARGV[1] and 1 or 0
end
for _, lease in ipairs(call('ZRANGEBYSCORE', members, '(' .. now, '+inf')) do
    if entry_of(lease) == ARGV[1] then return 1 end
end
return 0
