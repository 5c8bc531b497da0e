-- Lists sessions where one kind of entries is in the order asked for: a page of them, and how many there are in all.
-- ARGV: 1 '1' if from the highest on, 2 how many to skip and 3 to show of each range; then for each range: lowest and
--   highest entry to count, lowest and highest to show
local entries = KEYS[1]
-- rule: stores.sessions.operations.list_sessions
local total, found = 0, {''}
for i = 4, #ARGV, 4 do
  total = total + redis.call('ZLEXCOUNT', entries, ARGV[i], ARGV[i + 1])
  local some
  if ARGV[1] == '1' then
    some = redis.call('ZREVRANGEBYLEX', entries, ARGV[i + 3], ARGV[i + 2], 'LIMIT', ARGV[2], ARGV[3])
  else
    some = redis.call('ZRANGEBYLEX', entries, ARGV[i + 2], ARGV[i + 3], 'LIMIT', ARGV[2], ARGV[3])
  end
  for j = 1, #some do found[#found + 1] = some[j] end
end
found[1] = text(total)
return found
