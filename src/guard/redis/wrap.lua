-- body is a user's own script.
local refusal = enter(KEYS, ARGV, #KEYS >= 1 and #ARGV >= 2, 'N MARK [KEY ...] TOKEN MODE [ARG ...]')
return refusal or body({unpack(KEYS, 2)}, {unpack(ARGV, 3)})
