-- Put before every script of a lock: one hash a key, which is never dropped, so that tokens never go back.
-- Numbers are decimal strings; tokens are microseconds, below 2^53.  Field 'h' is the checksum of the others.

local key = KEYS[1]
local NAMES = {'i', 'o', 'c', 't', 'l', 'a', 'e', 'h'}
local ID, OWNER, CLAIM, TOKEN, TTL, ACQUIRED, EXPIRES, SUM = 1, 2, 3, 4, 5, 6, 7, 8

local function text(number)  -- tostring() gives 1e+15
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- rule: stores.locks._lease_end
local function lasting(ttl)  -- not before the time is over: holders count from before they asked
  return math.ceil(now / 1000) + tonumber(ttl)
end

local row = redis.call('HMGET', key, unpack(NAMES))

local function sum()
  return redis.sha1hex(table.concat(row, '\0', ID, EXPIRES)):sub(1, 8)
end

local function save()
  local set = {}
  row[SUM] = sum()
  for i = ID, SUM do set[2 * i - 1], set[2 * i] = NAMES[i], row[i] end
  redis.call('HSET', key, unpack(set))
end

if (row[ID] or row[SUM]) and row[SUM] ~= sum() then error('DAMAGED lease') end
if row[ID] and row[ID] ~= ARGV[1] then return 'X' end
-- rule: stores.locks.LeaseRow.held
local held = row[ID] and tonumber(row[EXPIRES]) * 1000 > now
