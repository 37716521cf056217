-- ARGV: token. Every later token is greater.
if last_token() < tonumber(ARGV[1]) then call('SET', counter, ARGV[1]) end
return 1
