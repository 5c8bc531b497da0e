-- Replaces the header by compare-and-swap, cuts the messages and adds others.
-- ARGV: 1 thread id, 2 expected epoch or '' if absent, 3 position and 4 last id of the expected head, 5 keep,
--   6… header, 26… field, messages
local key, h, keep = KEYS[1], load(KEYS[1]), tonumber(ARGV[5])
if h and h[ID] ~= ARGV[1] then return 'I' end
-- rule: stores.threads.operations.may_rebase
if ARGV[2] == '' then
  if h then return false end
elseif not h or h[EPOCH] ~= ARGV[2] or h[HEAD] ~= ARGV[3] or h[LAST] ~= ARGV[4] then
  return false
end

local new, gone, cut, cut_to = header_from(6), {}, nil, nil
local keeps = h and keep > tonumber(h[BASE])
if keeps then
  if h[BASE] ~= new[BASE] or h[BEFORE] ~= new[BEFORE] then return false end
  local m, position, head = messages(key, h), keep, tonumber(h[HEAD])
  while position < head do
    local first, data = m.field_at(position)
    local count, _, bodies = m.measure(data, first, position)
    if first < position then
      cut, cut_to = text(first), data:sub(1, m.skip(data, position - first))
    else
      gone[#gone + 1] = text(first)
    end
    for i = 1, #bodies do gone[#gone + 1] = bodies[i] end
    position = first + count
  end
elseif keep ~= tonumber(new[BASE]) then
  return false
end

write_header(key, new)
if not keeps and h then
  redis.call('UNLINK', key)
  write_header(key, new)
end
if cut then redis.call('HSET', key, cut, cut_to) end
delete(key, gone)
write(key, ARGV, 26)
redis.call('PERSIST', key)
return reply('H', new)
