-- ARGV: token. Every later token is greater.
raise_counter(ARGV[1])
return 1
