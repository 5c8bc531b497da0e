-- Put before every script on the index of sessions, which has one slot of a cluster for itself.
--   rows: a hash; field: session id; value: birth, revision, '8' or '0' twice (is there an oldest operation, an end of
--     life?) and a new line; those two in 8 bytes each; what the index must know, empty without a session:
--     times of creation and change, flags, expiry and deadline in 8, 8, 1, 8 and 8 bytes; the number of facets in 4, and
--     16 for each; a summary, opaque here
--   entries: a sorted set, all with score 0, so that bytes decide:
--     'f' facet 'c' creation id, 'f' facet 'u' change id: everything that can be filtered by, in both orders
--     'x' expiry id, 'w' deadline id, 'k' id if a clean-up is not finished, 'o' oldest operation id, 'd' end of life id
--   marks: a sorted set by time; a mark, session id NUL and random bytes, is there while a commit is on its way here
local PER_CALL = 2000

local function text(number)
  return string.format('%.0f', number)
end

local function now_ms()
  local now = redis.call('TIME')
  return now[1] * 1000 + math.floor(now[2] / 1000)
end

-- Where in a row what the index must know begins, less one; the two texts before it.  Nothing of one that is damaged.
local function opened(row)
  local operation, life = row:match('^%d+ %d+ ([08]) ([08])\n')
  if not operation then return end
  local at = row:find('\n', 1, true)
  local stop = at + operation
  if stop + life > #row then return end
  return stop + life, row:sub(at + 1, stop), row:sub(stop + 1, stop + life)
end

-- All entries of a row, as keys of a table; of one that is damaged, those that can be made out.
local function entries_of(id, row)
  local found, at, operation, life = {}, opened(row)
  if not at then return found end
  if operation ~= '' then found['o' .. operation .. id] = true end
  if life ~= '' then found['d' .. life .. id] = true end
  if #row < at + 37 then return found end
  local created, updated = 'c' .. row:sub(at + 1, at + 8) .. id, 'u' .. row:sub(at + 9, at + 16) .. id
  -- A wrong number would keep the server busy for minutes.
  local most = math.floor((#row - at - 37) / 16)
  local flags, facets = row:byte(at + 17), math.min(struct.unpack('>I4', row, at + 34), most)
  if flags % 2 == 1 then found['x' .. row:sub(at + 18, at + 25) .. id] = true end
  if flags % 4 >= 2 then found['w' .. row:sub(at + 26, at + 33) .. id] = true end
  if flags >= 4 then found['k' .. id] = true end
  for i = at + 38, at + 22 + 16 * facets, 16 do
    local facet = 'f' .. row:sub(i, i + 15)
    found[facet .. created], found[facet .. updated] = true, true
  end
  return found
end

local function fresh_row(birth, revision, operation, life, known)
  return birth .. ' ' .. revision .. ' ' .. #operation .. ' ' .. #life .. '\n' .. operation .. life .. known
end

local function in_parts(command, key, items)
  for i = 1, #items, PER_CALL do
    redis.call(command, key, unpack(items, i, math.min(i + PER_CALL - 1, #items)))
  end
end
