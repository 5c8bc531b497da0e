-- Adds one step exactly at its head, or finds that it stands there.
-- ARGV: 1 thread id, 2 epoch, 3 position and 4 last id of its head, 5 position and 6 last id after it, 7 bytes,
--   8 '1' if it commits, 9 bytes of its inputs, 10 kinds of an answer or '', 11 version that the slice replaces
--   or '', 12 slice, 13 archived position or '', 14 archived size, 15… field, messages
local key, h = KEYS[1], load(KEYS[1])
if not h then return false end
if h[ID] ~= ARGV[1] then return 'I' end
local no = refusal(h, ARGV[2])
if no then return reply(no, h) end

local before, grows, status, stored, set = h[HEAD], false, 'R', '', {}
local function put(field, value)
  h[field], set[#set + 1], set[#set + 2] = value, NAMES[field], value
end

if before == ARGV[3] then
  if h[LAST] ~= ARGV[4] then return reply('M', h) end
  if ARGV[11] ~= '' and ARGV[11] ~= h[VERSION] then return reply('V', h) end
  status, grows = 'A', true
  put(HEAD, ARGV[5])
  put(LAST, ARGV[6])
  put(SIZE, text(h[SIZE] + ARGV[7]))
  if ARGV[11] ~= '' then
    put(VERSION, text(h[VERSION] + 1))
    put(SLICE, ARGV[12])
  end
else
  local from, stop = tonumber(ARGV[3]), math.min(tonumber(ARGV[5]), tonumber(before))
  if id_before(key, h, from) ~= ARGV[4] then return reply('M', h) end
  stored = forward(key, h, from, stop, math.huge, math.huge)
  local given = {}
  for i = 16, #ARGV, 2 do given[#given + 1] = ARGV[i] end
  local inputs, count = table.concat(given):sub(1, ARGV[9]), tonumber(ARGV[9])
  local answer = stored:sub(count + 5, count + 5)
  if stored:sub(1, count) ~= inputs or (ARGV[10] ~= '' and (answer == '' or not ARGV[10]:find(answer, 1, true))) then
    return reply('O', h, stored)
  end
end

local lasting = grows
if ARGV[8] == '1' and tonumber(ARGV[5]) > tonumber(h[COMMITTED]) then
  put(COMMITTED, ARGV[5])
  lasting = true
end
if ARGV[13] ~= '' then
  local archived = tonumber(ARGV[13])
  if archived > tonumber(h[ARCHIVED]) and archived <= tonumber(h[HEAD]) then
    put(ARCHIVED, ARGV[13])
    put(ARCHIVED_SIZE, ARGV[14])
  end
end
local since = waiting_since(h, before)
if since ~= h[SINCE] then put(SINCE, since) end

if grows then
  for i = 15, #ARGV do set[#set + 1] = ARGV[i] end
end
write(key, set, 1)
if lasting then redis.call('PERSIST', key) end
return reply(status, h, stored)
