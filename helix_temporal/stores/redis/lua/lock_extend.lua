-- ARGV: key, token, ttl in ms or nothing for the lease's own.  '1', or nil if the token holds nothing.
-- rule: stores.locks.extend_lease
if not held or row[TOKEN] ~= ARGV[2] then return nil end
local ttl = ARGV[3] ~= '' and ARGV[3] or row[TTL]
row[TTL], row[EXPIRES] = ttl, text(lasting(ttl))
save()
return '1'
