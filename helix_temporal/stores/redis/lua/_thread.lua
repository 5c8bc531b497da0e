-- Put before every script.  A hot thread is one hash: a header of short fields, and messages, one field for each
-- append, named by the position of its first message; a field holds at most 64 messages.  A message with a large
-- body leaves a stub there, with the highest bit of its length set and without the body, which is a field of its
-- own, named by the position and 'b': so ids and places are found without reading it.  Every script checks first
-- and writes last, so one that fails half way has changed nothing.  Numbers are decimal strings.
-- Checksums: field 'h' is that of the header without the slice, and every script compares it first.  The slice, each
-- message and each id end with one of their own, which the client makes and compares.

local EPOCH, HEAD, COMMITTED, BASE, VERSION, SIZE, BASE_SIZE, ARCHIVED, ARCHIVED_SIZE, SINCE, CLOSED, DELETED,
  BORN, CUT, OWNER, LAST, BEFORE, ADAPTER, ORIGIN, SLICE, ID, SUM =
  1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22
local NAMES = {'e', 'n', 'c', 'b', 'v', 'z', 'y', 'f', 'g', 'u', 'x', 'd', 'r', 'k', 'o', 'l', 'p', 'a', 'q', 's', 'i', 'h'}
local PER_FIELD, PER_CALL, STUB = 64, 2000, 0x80000000
local ID_SUM, SUMS = 2, 6  -- bytes of the checksum after an id, and of a message's two together

local function text(number)  -- tostring() gives 1e+15
  return string.format('%.0f', number)
end

local function sum_of(h)
  return redis.sha1hex(table.concat(h, '\0', EPOCH, ORIGIN) .. '\0' .. h[ID]):sub(1, 8)
end

local function load(key)
  local h = redis.call('HMGET', key, unpack(NAMES))
  if not h[ID] and not h[SUM] then return nil end
  if not h[ID] or not h[SLICE] or h[SUM] ~= sum_of(h) then error('DAMAGED header') end
  return h
end

-- A status, the header and whatever follows: numbers and lengths in one line, then the texts.
local function reply(status, h, rest)
  return status .. h[EPOCH] .. ' ' .. h[HEAD] .. ' ' .. h[COMMITTED] .. ' ' .. h[BASE] .. ' ' .. h[VERSION] .. ' '
    .. h[SIZE] .. ' ' .. h[BASE_SIZE] .. ' ' .. h[ARCHIVED] .. ' ' .. h[ARCHIVED_SIZE] .. ' ' .. h[SINCE] .. ' ' .. h[CLOSED] .. ' '
    .. h[DELETED] .. ' ' .. h[BORN] .. ' ' .. h[CUT] .. ' ' .. #h[OWNER] .. ' ' .. #h[LAST] .. ' ' .. #h[BEFORE] .. ' ' .. #h[ADAPTER] .. ' '
    .. #h[ORIGIN] .. ' ' .. #h[SLICE] .. '\n'
    .. h[OWNER] .. h[LAST] .. h[BEFORE] .. h[ADAPTER] .. h[ORIGIN] .. h[SLICE] .. (rest or '')
end

-- 'F' fenced, 'B' the hot thread is behind the caller's open, nil if this epoch may write.
-- rule: stores.threads.fences.Fence.find_refusal
local function refusal(h, epoch)
  if h[EPOCH] ~= epoch then return tonumber(h[EPOCH]) > tonumber(epoch) and 'F' or 'B' end
  if h[CLOSED] ~= '0' or h[DELETED] ~= '0' then return 'F' end
end

-- Time of the oldest append beyond the archive once the head, which stood at `before`, is what the header says.
-- rule: stores.threads.operations.unarchived_since
local function waiting_since(h, before)
  local head, archived = tonumber(h[HEAD]), tonumber(h[ARCHIVED])
  if archived >= head or head == 0 then return '0' end
  if h[SINCE] ~= '0' and archived < tonumber(before) then return h[SINCE] end
  local now = redis.call('TIME')
  return text(now[1] * 1000 + math.floor(now[2] / 1000))
end

local function delete(key, names)
  for i = 1, #names, PER_CALL do
    redis.call('HDEL', key, unpack(names, i, math.min(i + PER_CALL - 1, #names)))
  end
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
  h[SUM] = sum_of(h)
  for i = 1, SUM do set[2 * i - 1], set[2 * i] = NAMES[i], h[i] end
  redis.call('HSET', key, unpack(set))
end

-- Reading messages: each is 4 bytes of length, a byte of kind, 2 of the id's length, the id and its checksum, the
-- body, and the message's checksum.
-- A function of functions, since most appends need none of them and making them takes time.
local function messages(key, h)
  local m, base, head = {}, tonumber(h[BASE]), tonumber(h[HEAD])

  local function torn(position)
    error('TORN at position ' .. text(position))
  end

  -- Bytes of the message at an offset, and how many of them are here: fewer if it is a stub.
  local function size_at(data, at)
    local size = struct.unpack('>I4', data, at + 1)
    if size < STUB then return 4 + size, 4 + size end
    return 4 + size - STUB, 7 + struct.unpack('>I2', data, at + 6) + ID_SUM
  end

  -- Offset of the message after the first `count`.
  function m.skip(data, count)
    local at = 0
    for _ = 1, count do
      local _, here = size_at(data, at)
      at = at + here
    end
    return at
  end

  -- How many messages, how many bytes they have, and the names of the fields with their bodies; `first` is the
  -- position of the first one, and those below `from` are left out of bytes and names.
  -- rule: models.stored_messages.size_of
  function m.measure(data, first, from)
    local at, position, bytes, bodies = 0, first, 0, {}
    while at < #data do
      local size, here = size_at(data, at)
      if position >= from then
        bytes = bytes + size - SUMS
        if size ~= here then bodies[#bodies + 1] = text(position) .. 'b' end
      end
      at, position = at + here, position + 1
    end
    return position - first, bytes, bodies
  end

  -- The id at an offset.
  local function id_at(data, at)
    return data:sub(at + 8, at + 7 + struct.unpack('>I2', data, at + 6))
  end

  -- The same with its length in 2 bytes before it, and its checksum behind.
  local function packed_id(data, at)
    return data:sub(at + 6, at + 7 + struct.unpack('>I2', data, at + 6) + ID_SUM)
  end

  -- The field that holds a position: its name as a number, and its bytes.
  function m.field_at(position)
    for first = position, math.max(base, position - PER_FIELD + 1), -1 do
      local data = redis.call('HGET', key, text(first))
      if data then return first, data end
    end
    torn(position)
  end

  -- rule: stores.protocols.hot.HotSnapshot.id_before
  function m.id_before(position)
    if position == base then return h[BEFORE] end
    if position < base or position > head then return nil end
    if position == head then return h[LAST] end
    local first, data = m.field_at(position - 1)
    return id_at(data, m.skip(data, position - 1 - first))
  end

  local function add(parts, data, start, finish)
    if start == 0 and finish == #data then
      parts[#parts + 1] = data
    elseif start < finish then
      parts[#parts + 1] = data:sub(start + 1, finish)
    end
  end

  -- Adds the message whose stub is at an offset.
  local function add_whole(parts, data, at, position)
    local size, here = size_at(data, at)
    local body = redis.call('HGET', key, text(position) .. 'b')
    if not body or #body ~= size - here then torn(position) end
    parts[#parts + 1] = struct.pack('>I4', size - 4) .. data:sub(at + 5, at + here)
    parts[#parts + 1] = body
  end

  -- The messages from `from` up to `stop` as they are in their fields, stubs and all.
  function m.raw(from, stop)
    local parts, position = {}, from
    while position < stop do
      local first, data = m.field_at(position)
      local at, finish = m.skip(data, position - first), #data
      if at >= finish then torn(position) end
      local count = m.measure(data, first, first)
      if first + count > stop then finish = m.skip(data, stop - first) end
      add(parts, data, at, finish)
      position = math.min(first + count, stop)
    end
    return table.concat(parts)
  end

  -- Adds the bytes of the messages from `from` up to `stop` to `parts`, at least one, ended by a count or by bytes.
  -- In parts: one long string costs four times as long, and nobody else is served meanwhile.
  -- rule: stores.threads.operations.select_page
  function m.forward(from, stop, parts, limit, max_bytes)
    local position, count, bytes = from, 0, 0
    while position < stop do
      local first, data = m.field_at(position)
      local start = m.skip(data, position - first)
      if start >= #data then torn(position) end
      local at = start
      while position < stop and at < #data do
        local size, here = size_at(data, at)
        if limit and count > 0 and (count >= limit or bytes + size - SUMS > max_bytes) then
          stop = position
        else
          if size ~= here then
            add(parts, data, start, at)
            add_whole(parts, data, at, position)
            start = at + here
          end
          at, position, count, bytes = at + here, position + 1, count + 1, bytes + size - SUMS
        end
      end
      add(parts, data, start, at)
    end
    return parts
  end

  -- Shows the fields that hold the messages from `floor` up to `stop` to visit(first, data, stop), newest first.
  -- It answers how many messages more it looks for, 0 for no more: so many names are asked for in one call, since
  -- each call costs more than what it brings.
  local function walk_back(floor, stop, visit)
    local position, lowest, wanted = stop, stop, 2
    while position > floor and wanted > 0 do
      if lowest == base or position - lowest >= PER_FIELD then torn(position - 1) end
      local names, from = {}, lowest
      lowest = math.max(base, from - wanted)
      for n = from - 1, lowest, -1 do names[from - n] = text(n) end
      local found = redis.call('HMGET', key, unpack(names))
      for i = 1, #names do
        if found[i] and position > floor and wanted > 0 then
          wanted = visit(from - i, found[i], position)
          position = from - i
        end
      end
    end
  end

  -- How many messages to look for where so many are wanted, in so many bytes, and each is about so large.
  local function ahead(messages, room, each)
    return math.min(messages, PER_FIELD, math.max(1, math.floor(room / each)))
  end

  local function reverse(parts)
    for i = 1, math.floor(#parts / 2) do parts[i], parts[#parts + 1 - i] = parts[#parts + 1 - i], parts[i] end
    return parts
  end

  -- The ids of the messages from `from` up to `stop`, packed.
  function m.ids(from, stop)
    local parts = {}
    walk_back(from, stop, function(first, data, before)
      local found, at = {}, 0
      for n = first, before - 1 do
        if at >= #data then torn(n) end
        if n >= from then found[#found + 1] = packed_id(data, at) end
        local _, here = size_at(data, at)
        at = at + here
      end
      parts[#parts + 1] = table.concat(found)
      return ahead(first - from, 262144, #data / (before - first))
    end)
    return table.concat(reverse(parts))
  end

  -- As forward, but from `stop` back, not below `floor`: position of the first, and the parts in order.
  -- rule: stores.threads.operations.select_page
  function m.backward(floor, stop, limit, max_bytes)
    local parts, position, count, bytes = {}, stop, 0, 0
    walk_back(floor, stop, function(first, data, before)
      local starts, sizes, at = {}, {}, 0
      for n = first, before - 1 do
        if at >= #data then torn(n) end
        local size, here = size_at(data, at)
        starts[n - first], sizes[n - first], at = at, size, at + here
      end
      local finish, full = at, false
      while position > first and position > floor and not full do
        local n = position - 1 - first
        full = count > 0 and (count >= limit or bytes + sizes[n] - SUMS > max_bytes)
        if not full then
          if at - starts[n] ~= sizes[n] then
            add(parts, data, at, finish)
            local whole = {}
            add_whole(whole, data, starts[n], position - 1)
            parts[#parts + 1], parts[#parts + 2] = whole[2], whole[1]
            finish = starts[n]
          end
          at, position, count, bytes = starts[n], position - 1, count + 1, bytes + sizes[n] - SUMS
        end
      end
      add(parts, data, at, finish)
      return full and 0 or ahead(limit - count, max_bytes - bytes, bytes / count)
    end)
    return position, reverse(parts)
  end

  -- Adds `parts` to `to`, some together: each costs the client as much as 2 KB do, and a long string the server.
  function m.join(parts, to)
    local from, size = 1, 0
    for i = 1, #parts do
      size = size + #parts[i]
      if size >= 16384 or i == #parts then
        to[#to + 1] = i == from and parts[i] or table.concat(parts, '', from, i)
        from, size = i + 1, 0
      end
    end
    return to
  end

  return m
end
