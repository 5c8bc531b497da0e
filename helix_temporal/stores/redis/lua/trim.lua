-- Forgets what an archive holds, from the base on.
-- ARGV: 1 thread id, 2 epoch, 3 position and 4 last id up to which it is archived, 5 position to keep from
local key, h = KEYS[1], load(KEYS[1])
if not h then return false end
if h[ID] ~= ARGV[1] then return 'I' end
local archived, position = tonumber(ARGV[3]), tonumber(h[BASE])
local m, stop = messages(key, h), math.min(archived, tonumber(ARGV[5]))
if refusal(h, ARGV[2]) or stop <= position or m.id_before(archived) ~= ARGV[4] then return reply('H', h) end

local before, bytes, gone, set = m.id_before(stop), 0, {}, {}
while position < stop do
  local first, data = m.field_at(position)
  local count = m.count(data)
  local dropped = m.skip(data, math.min(count, stop - first))
  gone[#gone + 1], position, bytes = text(first), first + count, bytes + dropped
  if position > stop then set = {text(stop), data:sub(dropped + 1)} end
end
local function put(field, value)
  h[field], set[#set + 1], set[#set + 2] = value, NAMES[field], value
end
put(BASE, text(stop))
put(BEFORE, before)
put(BASE_SIZE, text(h[BASE_SIZE] + bytes))
write(key, set, 1)
for i = 1, #gone, PER_CALL do redis.call('HDEL', key, unpack(gone, i, math.min(i + PER_CALL - 1, #gone))) end
return reply('H', h)
