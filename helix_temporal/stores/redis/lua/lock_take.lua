-- ARGV: key, owner, claim, ttl in ms.  The token, when it was acquired and when it ends; nil if another holds it.
local expires = lasting(ARGV[4])
if held and row[OWNER] ~= ARGV[2] then return nil end
if held and row[CLAIM] == ARGV[3] then
  expires = math.max(expires, tonumber(row[EXPIRES]))
  redis.call('HSET', key, 'l', ARGV[4], 'e', text(expires))
  return row[TOKEN] .. ' ' .. row[ACQUIRED] .. ' ' .. text(expires)
end
local token = text(math.max(now, (tonumber(row[TOKEN] or '0')) + 1))
local acquired = text(math.floor(now / 1000))
redis.call('HSET', key, 'i', ARGV[1], 'o', ARGV[2], 'c', ARGV[3], 't', token, 'l', ARGV[4], 'a', acquired,
  'e', text(expires))
return token .. ' ' .. acquired .. ' ' .. text(expires)
