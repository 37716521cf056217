-- Answers how many of the fields are new.
local refusal = enter(KEYS, ARGV, #KEYS == 2 and #ARGV >= 4 and #ARGV % 2 == 0,
    'hset 2 MARK KEY TOKEN MODE FIELD VALUE [FIELD VALUE ...]')
return refusal or redis.pcall('HSET', KEYS[2], unpack(ARGV, 3))
