-- withdraw.lua: takes ARGV[1] from KEYS[1], if there is enough, all in one step:
--
--     holdfast guard redis --wrap withdraw <withdraw.lua | redis-cli -x FUNCTION LOAD REPLACE
--     redis-cli -e FCALL withdraw 2 'holdfast.mark:{balance}' balance $HOLDFAST_TOKEN not-older 30
--
-- Before Redis 7:
--
--     holdfast guard redis --eval wrap <withdraw.lua >fenced.lua
--     redis-cli -e --eval fenced.lua 'holdfast.mark:{balance}' balance , $HOLDFAST_TOKEN not-older 30
--
-- The mark, the token and the mode are checked before this runs, and are not among KEYS and ARGV.
local left = tonumber(redis.call('GET', KEYS[1]) or 0) - tonumber(ARGV[1])
if left < 0 then return redis.error_reply('ERR there is not enough') end
redis.call('SET', KEYS[1], left)
return left
