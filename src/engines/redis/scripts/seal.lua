-- Redlock, the second round: the token is written where the vote was given. ARGV: lease, token, owner.
-- Refused (0) unless the key still holds this lease, and if the lease has a later token already: then
-- this is an old seal that was long under way. That the counter may be ahead does not matter: it
-- counts for all names of the prefix, and whoever had this name before us sealed before our vote, on
-- a node that voted for us.
local lease, token = ARGV[1], ARGV[2]
if call('GET', main) ~= lease then return 0 end
local own, since = entry_of(lease)
if own == token then return 1 end
if tonumber(own or 0) > tonumber(token) then return 0 end
raise_counter(token)
note_holder(lease, token, since or now, 0, ARGV[3], call('PTTL', main))
changed()
return 1
