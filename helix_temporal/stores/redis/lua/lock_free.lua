-- ARGV: key, token.  '1', or nil if the token holds nothing.
if not held or row[TOKEN] ~= ARGV[2] then return nil end
redis.call('HSET', key, 'e', '0')
return '1'
