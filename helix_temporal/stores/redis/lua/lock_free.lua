-- ARGV: key, token.  '1', or nil if the token holds nothing.
-- rule: stores.locks.release_lease
if not held or row[TOKEN] ~= ARGV[2] then return nil end
row[EXPIRES] = '0'
save()
return '1'
