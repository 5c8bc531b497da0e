-- One page.  ARGV: 1 thread id, 2 start, 3 stop, 4 limit, 5 bytes, 6 '1' if backward
local key, h = KEYS[1], load(KEYS[1])
if not h then return false end
if h[ID] ~= ARGV[1] then return 'I' end
local base, head = tonumber(h[BASE]), tonumber(h[HEAD])
local start = math.min(math.max(tonumber(ARGV[2]), base), head)
local stop = math.max(math.min(tonumber(ARGV[3]), head), start)
local m, limit, max_bytes = messages(key, h), tonumber(ARGV[4]), tonumber(ARGV[5])
local first, data = start, nil
if ARGV[6] == '1' then
  first, data = m.backward(start, stop, limit, max_bytes)
else
  data = m.forward(start, stop, limit, max_bytes)
end
return reply('P', h, text(first) .. '\n' .. data)
