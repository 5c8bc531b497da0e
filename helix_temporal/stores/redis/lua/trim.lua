-- Forgets what an archive holds, from the base on.
-- ARGV: 1 thread id, 2 epoch, 3 position and 4 last id up to which it is archived, 5 position to keep from
local key, h = KEYS[1], load(KEYS[1])
if not h then return false end
if h[ID] ~= ARGV[1] then return 'I' end
local archived, position = tonumber(ARGV[3]), tonumber(h[BASE])
-- rule: stores.threads.operations.trimmed_base
local m, stop = messages(key, h), math.min(archived, tonumber(ARGV[5]))
if refusal(h, ARGV[2]) or stop <= position or m.id_before(archived) ~= ARGV[4] then return reply('H', h) end

local before, dropped, gone, set = m.id_before(stop), 0, {}, {}
local function put(field, value)
  h[field], set[#set + 1], set[#set + 2] = value, NAMES[field], value
end
while position < stop do
  local first, data = m.field_at(position)
  local kept = m.skip(data, math.min(stop - first, (m.measure(data, first, first))))
  local count, bytes, bodies = m.measure(data:sub(1, kept), first, first)
  gone[#gone + 1], dropped, position = text(first), dropped + bytes, first + count
  for i = 1, #bodies do gone[#gone + 1] = bodies[i] end
  if kept < #data then set[1], set[2] = text(stop), data:sub(kept + 1) end
end
-- rule: stores.threads.operations.trim_thread
put(BASE, text(stop))
put(BEFORE, before)
put(BASE_SIZE, text(h[BASE_SIZE] + dropped))
put(SUM, sum_of(h))
write(key, set, 1)
delete(key, gone)
return reply('H', h)
