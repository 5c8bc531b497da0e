-- Begins to put aside the messages of a large install: the key expires by itself from the start.
-- ARGV: 1 milliseconds
redis.call('HSETNX', KEYS[1], 'i', '')
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1
