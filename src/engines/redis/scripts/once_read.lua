-- What is known of a once-record: {3, token, result, left}: it is done; {0, token, owner, age, left}: somebody
-- runs it; {4, token, left}: its runner died; {1}: nothing.
local done, result = kept_result()
if done then return {3, done, result, call('PTTL', record)} end
local value = call('GET', main)
if value then
    local token, since, _, owner = entry_of(value)
    local age = since and math.max(0, now - since) or -1
    return {0, token or '0', owner or '', string.format('%.0f', age), call('PTTL', main)}
end
local dead = mark_of()
if dead then return {4, dead, call('PTTL', mark)} end
return {1}
