-- One page.  ARGV: 1 thread id, 2 start, 3 stop, 4 limit, 5 bytes, 6 '1' if backward
local key, h = KEYS[1], load(KEYS[1])
if not h then return false end
if h[ID] ~= ARGV[1] then return 'I' end
local base, head = tonumber(h[BASE]), tonumber(h[HEAD])
-- rule: stores.threads.operations.select_page
local start = math.min(math.max(tonumber(ARGV[2]), base), head)
local stop = math.max(math.min(tonumber(ARGV[3]), head), start)
local m, limit, max_bytes = messages(key, h), tonumber(ARGV[4]), tonumber(ARGV[5])
if ARGV[6] == '0' then return m.forward(start, stop, {reply('P', h, text(start))}, limit, max_bytes) end
local first, parts = m.backward(start, stop, limit, max_bytes)
table.insert(parts, 1, reply('P', h, text(first)))
return parts
