-- Answers how many of the keys there were.
local refusal = enter(KEYS, ARGV, #KEYS >= 2 and #ARGV == 2,
    'del N MARK KEY [KEY ...] TOKEN MODE')
return refusal or redis.pcall('DEL', unpack(KEYS, 2))
