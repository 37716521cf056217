-- Answers what SET does; its options (EX, PX, KEEPTTL, NX, XX, GET...) are passed on.
local refusal = enter(KEYS, ARGV, #KEYS == 2 and #ARGV >= 3,
    'set 2 MARK KEY TOKEN MODE VALUE [OPTION ...]')
return refusal or redis.pcall('SET', KEYS[2], unpack(ARGV, 3))
