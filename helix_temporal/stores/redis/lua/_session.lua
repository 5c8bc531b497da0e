-- Put before every script on a session.  Its hash holds a header of one-letter fields, and rows: the field of one
-- is the letter of its kind, its group, NUL and its key; the value is its order in 8 bytes, then the body.  Its
-- sorted set holds them in order, all with score 0, so that bytes decide:
--   kind 'o' order key NUL group: every row
--   kind 'g' group NUL order key: those that are in a group
-- Fields: 'i' id, 'v' revision, 'e' fence, 'b' birth, 'h' the checksum of these four, 's' state, 'd' what the index
-- must know.  State and rows end with checksums of their own, which the client makes and compares.
-- Lua's own < on strings goes by the server's locale and is not to be used.
local PER_STEP = 1000

local function now_ms()
  local now = redis.call('TIME')
  return now[1] * 1000 + math.floor(now[2] / 1000)
end

local function session_sum(id, revision, fence, birth)
  return redis.sha1hex(id .. '\0' .. revision .. '\0' .. fence .. '\0' .. birth):sub(1, 8)
end

-- Id, revision, fence, birth and checksum, and what else is asked for; the id is nil if there is no session.
local function load_session(session, ...)
  local h = redis.call('HMGET', session, 'i', 'v', 'e', 'b', 'h', ...)
  local none = not (h[1] or h[2] or h[3] or h[4] or h[5])
  local whole = h[1] and h[2] and h[3] and h[4] and h[5]
  if not none and not (whole and h[5] == session_sum(h[1], h[2], h[3], h[4])) then error('DAMAGED header') end
  return h
end

-- The places in the sorted set of a row.
local function places(field, order)
  local stop = field:find('\0', 2, true)
  local kind, group, key = field:sub(1, 1), field:sub(2, stop - 1), field:sub(stop + 1)
  local every = kind .. 'o' .. order .. key .. '\0' .. group
  if group == '' then return every end
  return every, kind .. 'g' .. group .. '\0' .. order .. key
end

-- The field of the row at a place.
local function field_at(place)
  local kind = place:sub(1, 1)
  if place:sub(2, 2) == 'o' then
    local stop = place:find('\0', 11, true)
    return kind .. place:sub(stop + 1) .. '\0' .. place:sub(11, stop - 1)
  end
  local stop = place:find('\0', 3, true)
  return kind .. place:sub(3, stop) .. place:sub(stop + 9)
end

-- The fields of all rows of a kind and group, in order; `name` is the kind's letter and the group.
local function group_fields(order, name)
  local kind, grouped, fields = name:sub(1, 1), #name > 1, {}
  local first = grouped and kind .. 'g' .. name:sub(2) .. '\0' or kind .. 'o'
  local stop = grouped and kind .. 'g' .. name:sub(2) .. '\1' or kind .. 'p'
  local found = redis.call('ZRANGEBYLEX', order, '[' .. first, '(' .. stop)
  for i = 1, #found do
    if grouped or found[i]:sub(-1) == '\0' then fields[#fields + 1] = field_at(found[i]) end
  end
  return fields
end

-- Adds each of the fields that is there, and its value, to `to`.
local function add_rows(session, fields, to)
  for i = 1, #fields, PER_STEP do
    local stop = math.min(i + PER_STEP - 1, #fields)
    local values = redis.call('HMGET', session, unpack(fields, i, stop))
    for j = i, stop do
      if values[j - i + 1] then to[#to + 1], to[#to + 2] = fields[j], values[j - i + 1] end
    end
  end
  return to
end

-- Takes rows out of their places; `delete` those whose fields go as well.
local function take_out(session, order, fields, delete)
  for i = 1, #fields, PER_STEP do
    local stop, gone = math.min(i + PER_STEP - 1, #fields), {}
    local values = redis.call('HMGET', session, unpack(fields, i, stop))
    for j = i, stop do
      local value = values[j - i + 1]
      if value then
        local every, grouped = places(fields[j], value:sub(1, 8))
        gone[#gone + 1] = every
        gone[#gone + 1] = grouped
      end
    end
    if #gone > 0 then redis.call('ZREM', order, unpack(gone)) end
    if delete then redis.call('HDEL', session, unpack(fields, i, stop)) end
  end
end

-- Order of the oldest operation, '' if there is none.
local function oldest_operation(order)
  local found = redis.call('ZRANGEBYLEX', order, '[oo', '(op', 'LIMIT', 0, 1)
  return found[1] and found[1]:sub(3, 10) or ''
end
