-- Put before every script of a lock: one hash a key, which is never dropped, so that tokens never go back.
-- Numbers are decimal strings; tokens are microseconds, below 2^53.

local key = KEYS[1]
local ID, OWNER, CLAIM, TOKEN, TTL, ACQUIRED, EXPIRES = 1, 2, 3, 4, 5, 6, 7

local function text(number)  -- tostring() gives 1e+15
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local function lasting(ttl)  -- not before the time is over: holders count from before they asked
  return math.ceil(now / 1000) + tonumber(ttl)
end

local row = redis.call('HMGET', key, 'i', 'o', 'c', 't', 'l', 'a', 'e')
if row[ID] and row[ID] ~= ARGV[1] then return 'X' end
local held = row[ID] and tonumber(row[EXPIRES]) * 1000 > now
