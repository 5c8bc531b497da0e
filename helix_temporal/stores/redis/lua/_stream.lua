-- Put before every script of a stream: a hash for its head, a stream for its chunks, a hash for dedup keys.
-- Chunk n is the entry n-0; the entry n-r, without a body, tells those who wait of change r of the status.
-- Numbers are decimal strings below 2^53.  Times are ms.  Field 'h' of the head is the checksum of the others; a chunk
-- has its own behind its mark.

local head, chunks, keys = KEYS[1], KEYS[2], KEYS[3]
local NAMES = {'i', 'm', 's', 'f', 'a', 'z', 'r', 'c', 'u', 'x', 'k', 'h'}
local ID, MADE, STATUS, FENCE, FIRST, LAST, REVISION, CREATED, UPDATED, FACTS, KEPT, SUM = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12

local function text(number)  -- tostring() gives 1e+15
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local now = text(time[1] * 1000 + math.floor(time[2] / 1000))

-- rule: stores.streams.rules.admit_batch
-- rule: stores.streams.rules.head_after_change
local function lower(fence, than)
  return fence ~= '' and than ~= '' and tonumber(fence) < tonumber(than)
end

local row = redis.call('HMGET', head, unpack(NAMES))

local function sum()
  return redis.sha1hex(table.concat(row, '\0', ID, KEPT)):sub(1, 8)
end

local function save()
  local set = {}
  row[SUM] = sum()
  for i = ID, SUM do set[2 * i - 1], set[2 * i] = NAMES[i], row[i] end
  redis.call('HSET', head, unpack(set))
end

-- The mark says when, and of which stream: a reader that waits may outlive its own.
local function add_chunk(sequence, run_id, body)
  local mark = now .. ' ' .. row[MADE]:sub(1, 8)
  local checksum = redis.sha1hex(sequence .. '\0' .. run_id .. '\0' .. mark .. '\0' .. body):sub(1, 8)
  redis.call('XADD', chunks, sequence .. '-0', 'r', run_id, 't', mark .. ' ' .. checksum, 'b', body)
end

-- Saves the head.  Only streams end by themselves: what counts is in thread and state.
local function keep(ttl, always)
  local spare = ttl ~= '' and math.floor(tonumber(ttl) / 8)
  if ttl == '' or (not always and row[KEPT] ~= '0' and tonumber(now) - tonumber(row[KEPT]) < spare) then
    return save()
  end
  ttl = text(tonumber(ttl) + spare)
  row[KEPT] = now
  save()
  redis.call('PEXPIRE', head, ttl)
  redis.call('PEXPIRE', chunks, ttl)
  redis.call('PEXPIRE', keys, ttl)
end

if (row[ID] or row[SUM]) and row[SUM] ~= sum() then error('DAMAGED head') end
if row[ID] and row[ID] ~= ARGV[1] then return {'X'} end
