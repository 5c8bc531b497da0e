-- Notes where the thread stood when all of it was archived.  ARGV: 1 thread id, 2 place
local stored = redis.call('HGET', KEYS[1], 'i')
if not stored then return '0' end
if stored ~= ARGV[1] then return 'I' end
redis.call('HSET', KEYS[1], 'w', ARGV[2])
return '1'
