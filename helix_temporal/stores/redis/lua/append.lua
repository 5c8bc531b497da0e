-- Adds one step exactly at its head, or finds that it stands there.
-- ARGV: 1 thread id, 2 numbers (one argument: each costs the client half a microsecond), 3 last id of its head,
--   4 last id after it, 5 slice, 6… field, messages
-- Numbers: epoch, position of its head and after it, bytes of all, bytes of the inputs in their fields, '1' if it
--   commits, kind of its last message; then, each '-' if none: kinds of an answer, version that the slice replaces, archived position and size
local key, h = KEYS[1], load(KEYS[1])
if not h then return false end
if h[ID] ~= ARGV[1] then return 'I' end
local epoch, from, to, size, inputs_size, commits, kind, kinds, version, archived, archived_size =
  ARGV[2]:match('^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$')
local no = refusal(h, epoch)
if no then return reply(no, h) end

-- rule: stores.threads.operations.append_to_thread
local before, was_waiting, grows, stored, set = h[HEAD], h[SINCE] ~= '0', false, '', {}
local function put(field, value)
  h[field], set[#set + 1], set[#set + 2] = value, NAMES[field], value
end

-- rule: stores.threads.standing_step.is_repeated_step
if before == from then
  if h[LAST] ~= ARGV[3] then return reply('M', h) end
  -- rule: stores.threads.operations.check_slice_version
  if version ~= '-' then
    if version ~= h[VERSION] then return reply('V', h) end
    put(VERSION, text(version + 1))
    put(SLICE, ARGV[5])
  end
  grows = true
  put(HEAD, to)
  put(LAST, ARGV[4])
  put(SIZE, text(h[SIZE] + size))
else
  local m, count = messages(key, h), tonumber(inputs_size)
  local inputs = to - from - (kinds == '-' and 0 or 1)
  if m.id_before(tonumber(from)) ~= ARGV[3] then return reply('M', h) end
  local first, stop = tonumber(from), math.min(tonumber(to), tonumber(before))
  stored = table.concat(m.forward(first, stop, {}))
  -- rule: stores.threads.standing_step.is_same_step
  local held, given, same = m.raw(first, stop), {}, true
  for i = 6, #ARGV, 2 do
    local body = ARGV[i]:match('^(%d+)b$')
    if not body then
      given[#given + 1] = ARGV[i + 1]
    elseif tonumber(body) < first + inputs then
      same = same and redis.call('HGET', key, ARGV[i]) == ARGV[i + 1]
    end
  end
  local answer = held:sub(count + 5, count + 5)
  if not same or held:sub(1, count) ~= table.concat(given):sub(1, count)
    or (kinds ~= '-' and (answer == '' or not kinds:find(answer, 1, true))) then
    return reply('O', h, stored)
  end
  if kinds ~= '-' then kind = answer end
end

local lasts = grows
-- The answer that stands decides: one that asks for tools ends no turn.
-- rule: stores.threads.standing_step.ends_turn
if commits == '1' and kind ~= 'c' and tonumber(to) > tonumber(h[COMMITTED]) then
  put(COMMITTED, to)
  lasts = true
end
-- rule: stores.threads.operations.moved_hint
if archived ~= '-' and tonumber(archived) > tonumber(h[ARCHIVED]) and tonumber(archived) <= tonumber(h[HEAD]) then
  put(ARCHIVED, archived)
  put(ARCHIVED_SIZE, archived_size)
end
local since = waiting_since(h, before)
if since ~= h[SINCE] then put(SINCE, since) end
if #set > 0 then put(SUM, sum_of(h)) end

if grows then
  for i = 6, #ARGV do set[#set + 1] = ARGV[i] end
end
write(key, set, 1)
-- Only evict sets a time to live, and only on a hot thread that has nothing waiting.
if lasts and not was_waiting then redis.call('PERSIST', key) end
return reply(grows and 'A' or 'R', h, stored)
