-- Raises the mark before the first read. Answers the mark.
local refusal = enter(KEYS, ARGV, #KEYS == 1 and #ARGV == 2, 'enter 1 MARK TOKEN MODE')
return refusal or tonumber(ARGV[1])
