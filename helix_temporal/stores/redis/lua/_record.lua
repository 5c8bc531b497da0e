-- Put before every script.  A record is one hash: a header of short fields, and messages, one field for each
-- append, named by the position of its first message; a field holds at most 64 messages.  Every script checks
-- first and writes last, so one that fails half way has changed nothing.  Numbers are decimal strings.

local EPOCH, HEAD, COMMITTED, BASE, VERSION, SIZE, ARCHIVED, ARCHIVED_SIZE, SINCE, CLOSED, DELETED,
  BORN, CUT, OWNER, LAST, BEFORE, ADAPTER, SLICE, ID = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19
local NAMES = {'e', 'n', 'c', 'b', 'v', 'z', 'f', 'g', 'u', 'x', 'd', 'r', 'k', 'o', 'l', 'p', 'a', 's', 'i'}
local PER_FIELD, PER_CALL = 64, 2000

local function text(number)  -- tostring() gives 1e+15
  return string.format('%.0f', number)
end

local function load(key)
  local h = redis.call('HMGET', key, unpack(NAMES))
  return h[ID] and h or nil
end

-- A status, the header and whatever follows: numbers and lengths in one line, then the texts.
local function reply(status, h, rest)
  return status .. h[EPOCH] .. ' ' .. h[HEAD] .. ' ' .. h[COMMITTED] .. ' ' .. h[BASE] .. ' ' .. h[VERSION] .. ' '
    .. h[SIZE] .. ' ' .. h[ARCHIVED] .. ' ' .. h[ARCHIVED_SIZE] .. ' ' .. h[SINCE] .. ' ' .. h[CLOSED] .. ' '
    .. h[DELETED] .. ' ' .. h[BORN] .. ' ' .. h[CUT] .. ' ' .. #h[OWNER] .. ' ' .. #h[LAST] .. ' ' .. #h[BEFORE] .. ' ' .. #h[ADAPTER] .. ' '
    .. #h[SLICE] .. '\n' .. h[OWNER] .. h[LAST] .. h[BEFORE] .. h[ADAPTER] .. h[SLICE] .. (rest or '')
end

-- 'F' fenced, 'B' the record is behind the caller's open, nil if this epoch may write.
local function refusal(h, epoch)
  if h[EPOCH] ~= epoch then return tonumber(h[EPOCH]) > tonumber(epoch) and 'F' or 'B' end
  if h[CLOSED] ~= '0' or h[DELETED] ~= '0' then return 'F' end
end

-- Time of the oldest append beyond the archive once the head, which stood at `before`, is what the header says.
local function waiting_since(h, before)
  local head, archived = tonumber(h[HEAD]), tonumber(h[ARCHIVED])
  if archived >= head or head == 0 then return '0' end
  if h[SINCE] ~= '0' and archived < tonumber(before) then return h[SINCE] end
  local now = redis.call('TIME')
  return text(now[1] * 1000 + math.floor(now[2] / 1000))
end

local function write(key, pairs_of, from)
  for i = from, #pairs_of, PER_CALL do
    redis.call('HSET', key, unpack(pairs_of, i, math.min(i + PER_CALL - 1, #pairs_of)))
  end
end

-- The header that stands in ARGV from `from` on, and what makes it one in the hash.
local function header_from(from)
  local h = {unpack(ARGV, from, from + SLICE - 1)}
  h[ID] = ARGV[1]
  h[SINCE] = waiting_since(h, h[HEAD])
  return h
end

local function write_header(key, h)
  local set = {}
  for i = 1, ID do set[2 * i - 1], set[2 * i] = NAMES[i], h[i] end
  redis.call('HSET', key, unpack(set))
end

-- Reading messages: each is 4 bytes of length, a byte of kind, 2 of the id's length, the id, the body.
-- A function of functions, since most appends need none of them and making them takes time.
local function messages(key, h)
  local m, base, head = {}, tonumber(h[BASE]), tonumber(h[HEAD])

  local function torn(position)
    error('TORN at position ' .. text(position))
  end

  local function size_at(data, at)
    return 4 + struct.unpack('>I4', data, at + 1)
  end

  -- Offset of the message after the first `count`.
  function m.skip(data, count)
    local at = 0
    for _ = 1, count do at = at + size_at(data, at) end
    return at
  end

  function m.count(data)
    local at, count = 0, 0
    while at < #data do at, count = at + size_at(data, at), count + 1 end
    return count
  end

  -- The id at an offset, with its length in 2 bytes before it.
  local function packed_id(data, at)
    return data:sub(at + 6, at + 7 + struct.unpack('>I2', data, at + 6))
  end

  -- The field that holds a position: its name as a number, and its bytes.
  function m.field_at(position)
    for first = position, math.max(base, position - PER_FIELD + 1), -1 do
      local data = redis.call('HGET', key, text(first))
      if data then return first, data end
    end
    torn(position)
  end

  function m.id_before(position)
    if position == base then return h[BEFORE] end
    if position < base or position > head then return nil end
    if position == head then return h[LAST] end
    local first, data = m.field_at(position - 1)
    return packed_id(data, m.skip(data, position - 1 - first)):sub(3)
  end

  local function part(data, start, finish)
    if start == 0 and finish == #data then return data end
    return data:sub(start + 1, finish)
  end

  -- Adds the bytes of the messages from `from` up to `stop` to `parts`, at least one, ended by a count or by bytes.
  -- In parts: one long string costs four times as long, and nobody else is served meanwhile.
  function m.forward(from, stop, parts, limit, max_bytes)
    local position, count, bytes = from, 0, 0
    while position < stop do
      local first, data = m.field_at(position)
      local start = m.skip(data, position - first)
      if start >= #data then torn(position) end
      local at = start
      while position < stop and at < #data do
        local size = size_at(data, at)
        if limit and count > 0 and (count >= limit or bytes + size > max_bytes) then
          stop = position
        else
          at, position, count, bytes = at + size, position + 1, count + 1, bytes + size
        end
      end
      parts[#parts + 1] = part(data, start, at)
    end
    return parts
  end

  -- The ids of the messages from `from` up to `stop`, each with its length in 2 bytes before it.
  function m.ids(from, stop)
    local parts, position = {}, from
    while position < stop do
      local first, data = m.field_at(position)
      local at = m.skip(data, position - first)
      if at >= #data then torn(position) end
      while position < stop and at < #data do
        parts[#parts + 1] = packed_id(data, at)
        at, position = at + size_at(data, at), position + 1
      end
    end
    return table.concat(parts)
  end

  -- As forward, but from `stop` back, not below `floor`: position of the first, and the parts in order.
  function m.backward(floor, stop, limit, max_bytes)
    local parts, position, count, bytes = {}, stop, 0, 0
    while position > floor do
      local first, data = m.field_at(position - 1)
      local starts, at = {}, 0
      for n = first, position - 1 do
        starts[n - first] = at
        at = at + size_at(data, at)
      end
      local finish = at
      while position > first and position > floor do
        local size = at - starts[position - 1 - first]
        if count > 0 and (count >= limit or bytes + size > max_bytes) then
          floor = position
        else
          at, position, count, bytes = at - size, position - 1, count + 1, bytes + size
        end
      end
      parts[#parts + 1] = part(data, at, finish)
    end
    for i = 1, math.floor(#parts / 2) do parts[i], parts[#parts + 1 - i] = parts[#parts + 1 - i], parts[i] end
    return position, parts
  end

  return m
end
