-- What a step needs to know.  ARGV: 1 thread id, 2 position of its head, 3 messages after it,
-- 4 limit and 5 bytes of the window before it, 6 ids in all
local key, h = KEYS[1], load(KEYS[1])
if not h then return false end
if h[ID] ~= ARGV[1] then return 'I' end
local m, base, head, wanted = messages(key, h), tonumber(h[BASE]), tonumber(h[HEAD]), tonumber(ARGV[2])
-- rule: stores.threads.operations.step_view
local at = math.min(math.max(wanted, base), head)

local after = ''
if at == wanted then after = table.concat(m.forward(at, math.min(at + tonumber(ARGV[3]), head), {})) end
local first, window = m.backward(base, at, tonumber(ARGV[4]), tonumber(ARGV[5]))
local more = math.max(tonumber(ARGV[6]) - (at - first), 0)
local first_id = math.max(base, first - more)
local ids = m.ids(first_id, first)
local last = m.id_before(wanted)
return m.join(window, {reply('W', h, #after .. ' ' .. (last and #last or -1) .. ' ' .. text(first) .. ' ' .. text(first_id) .. '\n' .. after .. (last or '') .. ids)})
