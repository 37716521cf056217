-- Redlock, the second round: the token is written where the vote was given. ARGV: lease, token, owner.
-- Refused (0) unless the key still holds this lease and no token as large is known here.
local lease, token = ARGV[1], ARGV[2]
if call('GET', main) ~= lease then return 0 end
local own, since = entry_of(lease)
if own == token then return 1 end
if last_token() >= tonumber(token) then return 0 end
call('SET', counter, token)
note_holder(lease, token, since or now, 0, ARGV[3], call('PTTL', main))
changed()
return 1
