-- Names a session in indexes (sorted sets, all in one slot), at the time of its newest entry.
-- ARGV: session, time in ms.
for _, key in ipairs(KEYS) do
  local known = redis.call('ZSCORE', key, ARGV[1])
  if not known or tonumber(known) < tonumber(ARGV[2]) then
    redis.call('ZADD', key, ARGV[2], ARGV[1])
  end
end
