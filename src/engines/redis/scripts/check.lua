-- ARGV: token. Answers 0 if no hold with that token is alive; else 1 if it is exclusive, 2 shared, 3 a permit.
local value = call('GET', main)
if not value or value == '*broken' then return 0 end
if value ~= '*shared' and not permits_of(value) then
    return entry_of(value) == ARGV[1] and 1 or 0
end
for _, lease in ipairs(call('ZRANGEBYSCORE', members, '(' .. now, '+inf')) do
    if entry_of(lease) == ARGV[1] then return value == '*shared' and 2 or 3 end
end
return 0
