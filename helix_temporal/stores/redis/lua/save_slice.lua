-- Replaces the slice.  ARGV: 1 thread id, 2 epoch, 3 expected version, 4 the version after it, 5 slice
local key, h = KEYS[1], load(KEYS[1])
if not h then return false end
if h[ID] ~= ARGV[1] then return 'I' end
-- rule: stores.threads.operations.save_slice
local no = refusal(h, ARGV[2])
if no then return reply(no, h) end
if h[VERSION] == ARGV[4] and h[SLICE] == ARGV[5] then return 'A' end
-- rule: stores.threads.operations.check_slice_version
if h[VERSION] ~= ARGV[3] then return reply('V', h) end
h[VERSION] = ARGV[4]
redis.call('HSET', key, NAMES[VERSION], ARGV[4], NAMES[SLICE], ARGV[5], NAMES[SUM], sum_of(h))
redis.call('PERSIST', key)
return 'A'
