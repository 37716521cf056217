-- check.lua: what a mark is, and who may pass. The operations come after it: one for EVAL, all of
-- them in the library. Each takes the mark's key first, then its own keys; the token, the mode, then
-- its own arguments.
--
-- A mark is a string of digits: the greatest token seen. It is there for ever, and never goes down
-- but by reset.lua. All its keys begin alike, so that whoever mixes them up with the data's is told.
local MARKS, LOG = 'holdfast.mark:', 'holdfast.resets'
-- Tokens are exact as Lua numbers up to here; and unpack takes fewer than 8000 words.
local TOKEN_MAX, WORDS_MAX, SHOWN_MAX = 9007199254740991, 7000, 100

-- An error is one line, whatever came from outside.
local function shown(text)
    return (string.gsub(string.sub(text, 1, SHOWN_MAX), '%c', '?'))
end

local function wrong(...)
    return {err = 'ERR holdfast: ' .. string.format(...)}
end

-- Digits only: tonumber would take ' 5', '1e3' and '0x10', too.
local function is_token(text)
    return #text <= 16 and string.find(text, '^[1-9]%d*$') and tonumber(text) <= TOKEN_MAX
end

local function begins(key, with)
    return string.sub(key, 1, #with) == with
end

-- What is wrong with the call itself, or nil. fits: it has as many words as the operation wants.
local function misuse(keys, args, fits, usage)
    if not fits then return wrong('usage: %s', usage) end
    if #keys + #args > WORDS_MAX then
        return wrong('at most %d keys and arguments in one call', WORDS_MAX)
    end
    if not begins(keys[1], MARKS) or keys[1] == MARKS then
        return wrong("the first key must be a mark's, '%s...', and is '%s'", MARKS, shown(keys[1]))
    end
    for i = 2, #keys do
        if begins(keys[i], MARKS) then
            return wrong("only the first key can be a mark's, and '%s' is one", shown(keys[i]))
        end
    end
end

-- The mark, or false where there is none; nil and an error if something else is kept there.
local function mark_of(key)
    local seen = redis.pcall('GET', key)
    if not seen or (type(seen) == 'string' and is_token(seen)) then return seen end
    if type(seen) == 'table' and not begins(seen.err, 'WRONGTYPE') then return nil, seen end
    return nil, wrong("'%s' is no mark: it holds something else than a token (only a reset helps)",
        shown(key))
end

local function stale(key, token, seen, how)
    return {err = string.format(
        "STALE %s %s stale fencing token: %s is %s than %s, which '%s' has seen", token, seen, token,
        how, seen, shown(key))}
end

-- Raises the mark, whatever comes of the operation. Answers what keeps the caller out, or nil.
local function enter(keys, args, fits, usage)
    local problem = misuse(keys, args, fits, usage)
    if problem then return problem end
    local key, token, mode = keys[1], args[1], args[2]
    if not is_token(token) then
        return wrong("a token is a number from 1 to %.0f, in digits, and not '%s'", TOKEN_MAX,
            shown(token))
    end
    if mode ~= 'not-older' and mode ~= 'newer' then
        return wrong("the mode is 'not-older' or 'newer', and not '%s'", shown(mode))
    end
    local seen, trouble = mark_of(key)
    if trouble then return trouble end
    local before, now = tonumber(seen or 0), tonumber(token)
    if now < before then return stale(key, token, seen, 'older') end
    if now == before and mode == 'newer' then return stale(key, token, seen, 'not newer') end
    if now > before then
        redis.call('SET', key, token)
    else -- two writes that change nothing: where Redis must not write, nobody gets in
        redis.call('SETRANGE', key, 0, '')
        redis.call('PERSIST', key) -- unless somebody has given the mark an end
    end
end
