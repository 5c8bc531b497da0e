-- Puts messages of a large install aside; what is never used expires.  ARGV: 1 milliseconds, 2… field, messages
redis.call('HSET', KEYS[1], unpack(ARGV, 2))
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1
