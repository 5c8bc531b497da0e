-- Put before every script of a stream: a hash for its head, a stream for its chunks, a hash for dedup keys.
-- Chunk n is the entry n-0; the entry n-r, without a body, tells those who wait of change r of the status.
-- Numbers are decimal strings below 2^53.  Times are ms.

local head, chunks, keys = KEYS[1], KEYS[2], KEYS[3]
local ID, MADE, STATUS, FENCE, FIRST, LAST, REVISION, KEPT = 1, 2, 3, 4, 5, 6, 7, 11

local function text(number)  -- tostring() gives 1e+15
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local now = text(time[1] * 1000 + math.floor(time[2] / 1000))

local function lower(fence, than)
  return fence ~= '' and than ~= '' and tonumber(fence) < tonumber(than)
end

local function mark(made)  -- when, and of which stream: a reader that waits may outlive its own
  return now .. ' ' .. string.sub(made, 1, 8)
end

local row = redis.call('HMGET', head, 'i', 'm', 's', 'f', 'a', 'z', 'r', 'c', 'u', 'x', 'k')

local function keep(ttl, always)  -- only streams end by themselves: what counts is in thread and state
  if ttl == '' then return end
  local spare = math.floor(tonumber(ttl) / 8)
  if not always and row[KEPT] and tonumber(now) - tonumber(row[KEPT]) < spare then return end
  ttl = text(tonumber(ttl) + spare)
  redis.call('HSET', head, 'k', now)
  redis.call('PEXPIRE', head, ttl)
  redis.call('PEXPIRE', chunks, ttl)
  redis.call('PEXPIRE', keys, ttl)
end

if row[ID] and row[ID] ~= ARGV[1] then return {'X'} end
