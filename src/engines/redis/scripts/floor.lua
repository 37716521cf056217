-- ARGV: token. Every later token is greater. Returns the last one.
raise_counter(ARGV[1])
return last_token()
