-- ARGV: key, owner, claim, ttl in ms.  The token, when it was acquired and when it ends; nil if another holds it.
-- rule: stores.locks.take_lease
local expires = lasting(ARGV[4])
if held and row[OWNER] ~= ARGV[2] then return nil end
if held and row[CLAIM] == ARGV[3] then
  expires = math.max(expires, tonumber(row[EXPIRES]))
  row[TTL], row[EXPIRES] = ARGV[4], text(expires)
  save()
  return row[TOKEN] .. ' ' .. row[ACQUIRED] .. ' ' .. text(expires)
end
local token = text(math.max(now, (tonumber(row[TOKEN] or '0')) + 1))
local acquired = text(math.floor(now / 1000))
row = {ARGV[1], ARGV[2], ARGV[3], token, ARGV[4], acquired, text(expires)}
save()
return token .. ' ' .. acquired .. ' ' .. text(expires)
