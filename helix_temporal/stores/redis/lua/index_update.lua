-- Lets the index know of a session, unless it knows of a later commit; and takes out a mark.
-- ARGV: 1 session id, 2 mark or '', 3 birth, '' to forget what has reached its end of life, 4 revision, 5 oldest
--   operation or '', 6 end of life or '', 7 what the index must know
local rows, entries, marks = KEYS[1], KEYS[2], KEYS[3]
local id, birth, revision = ARGV[1], ARGV[3], ARGV[4]
local row = redis.call('HGET', rows, id)

local function is_due()
  if birth == '' then
    if not row then return false end
    local at, _, life = opened(row)
    return at and life ~= '' and struct.unpack('>I8', life) <= now_ms()
  end
  if not row then return true end
  local known, newest = row:match('^(%d+) (%d+) ')
  if not known then return true end
  if known ~= birth then return tonumber(known) < tonumber(birth) end
  return tonumber(newest) <= tonumber(revision)
end

if is_due() then
  local old, new, add, gone = row and entries_of(id, row) or {}, {}, {}, {}
  if birth == '' then
    redis.call('HDEL', rows, id)
  else
    local fresh = fresh_row(birth, revision, ARGV[5], ARGV[6], ARGV[7])
    new = entries_of(id, fresh)
    redis.call('HSET', rows, id, fresh)
  end
  for entry in pairs(new) do
    if not old[entry] then add[#add + 1], add[#add + 2] = '0', entry end
  end
  for entry in pairs(old) do
    if not new[entry] then gone[#gone + 1] = entry end
  end
  in_parts('ZADD', entries, add)
  in_parts('ZREM', entries, gone)
end
if ARGV[2] ~= '' then redis.call('ZREM', marks, ARGV[2]) end
return 'A'
