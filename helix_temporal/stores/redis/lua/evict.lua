-- Drops a hot thread, or lets it expire, if all of it is archived.
-- ARGV: 1 thread id, 2 epoch, 3 position and 4 last id of the archive's head, 5 committed, 6 slice's version,
--   7 archived size, 8 milliseconds to keep it or ''
local key, h = KEYS[1], load(KEYS[1])
if not h then return 'absent' end
if h[ID] ~= ARGV[1] then return 'I' end
-- rule: stores.threads.operations.archived_all
if h[EPOCH] ~= ARGV[2] or h[HEAD] ~= ARGV[3] or h[LAST] ~= ARGV[4] or h[COMMITTED] ~= ARGV[5]
  or h[VERSION] ~= ARGV[6] then return 'newer' end
if ARGV[8] == '' then
  redis.call('UNLINK', key)
  return 'dropped'
end
-- rule: stores.threads.operations.evict_thread
h[ARCHIVED], h[ARCHIVED_SIZE], h[SINCE] = ARGV[3], ARGV[7], '0'
redis.call('HSET', key, NAMES[ARCHIVED], ARGV[3], NAMES[ARCHIVED_SIZE], ARGV[7], NAMES[SINCE], '0', NAMES[SUM], sum_of(h))
redis.call('PEXPIRE', key, ARGV[8])
return 'kept_warm'
