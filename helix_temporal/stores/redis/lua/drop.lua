-- Removes a hot thread for good, unless the caller was replaced.  ARGV: 1 thread id, 2 epoch
local h = load(KEYS[1])
if not h then return false end
if h[ID] ~= ARGV[1] then return 'I' end
-- rule: stores.threads.fences.Fence.check_not_replaced
if tonumber(h[EPOCH]) > tonumber(ARGV[2]) then return reply('F', h) end
redis.call('UNLINK', KEYS[1])
return false
