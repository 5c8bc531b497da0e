-- What a step needs to know.  ARGV: 1 thread id, 2 position of its head, 3 messages after it,
-- 4 limit and 5 bytes of the window before it, 6 ids in all
local key, h = KEYS[1], load(KEYS[1])
if not h then return false end
if h[ID] ~= ARGV[1] then return 'I' end
local base, head, wanted = tonumber(h[BASE]), tonumber(h[HEAD]), tonumber(ARGV[2])
local at = math.min(math.max(wanted, base), head)

local after = ''
if at == wanted then after = forward(key, h, at, math.min(at + tonumber(ARGV[3]), head), math.huge, math.huge) end
local first, before = backward(key, h, base, at, tonumber(ARGV[4]), tonumber(ARGV[5]))
local ids = {}
each(key, h, math.max(base, first - math.max(tonumber(ARGV[6]) - (at - first), 0)), first, function(data, place)
  ids[#ids + 1] = data:sub(place + 6, place + 7 + struct.unpack('>I2', data, place + 6))
end)
local last = id_before(key, h, wanted)
return reply('W', h, #after .. ' ' .. #before .. ' ' .. (last and #last or -1) .. '\n'
  .. after .. before .. (last or '') .. table.concat(ids))
