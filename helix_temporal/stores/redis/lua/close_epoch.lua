-- Shuts the fence for one epoch: it refuses further writes.  ARGV: 1 thread id, 2 epoch
local h = load(KEYS[1])
if not h then return false end
if h[ID] ~= ARGV[1] then return 'I' end
-- rule: stores.threads.operations.close_epoch
if h[EPOCH] == ARGV[2] and h[CLOSED] ~= '1' then
  h[CLOSED] = '1'
  redis.call('HSET', KEYS[1], NAMES[CLOSED], '1', NAMES[SUM], sum_of(h))
end
return false
