-- Header and all messages from a position on.  ARGV: 1 thread id, 2 position, -1 for one before the archived one
local key, h = KEYS[1], load(KEYS[1])
if not h then return false end
if h[ID] ~= ARGV[1] then return 'I' end
local since, head = tonumber(ARGV[2]), tonumber(h[HEAD])
-- rule: stores.threads.operations.snapshot_start
if since == -1 then since = tonumber(h[ARCHIVED]) - 1 end
local first = math.min(math.max(since, tonumber(h[BASE])), head)
return messages(key, h).forward(first, head, {reply('S', h, text(first))})
