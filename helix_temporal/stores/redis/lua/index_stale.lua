-- What readers must mend: commits that did not arrive in time, and sessions that reached their end of life.
-- ARGV: 1 and 2 age in milliseconds from which a mark is looked at, and from which it can go, 3 marks and
--   4 ends of life to skip, 5 limit
-- Answers: number of marks; marks, each after 'S' if it can go, else 'M'; session ids.
local entries, marks = KEYS[1], KEYS[2]
local now = now_ms()
local late = redis.call('ZRANGEBYSCORE', marks, '-inf', text(now - ARGV[1]), 'WITHSCORES', 'LIMIT', ARGV[3], ARGV[5])
local found = {text(#late / 2)}
for i = 1, #late, 2 do
  found[#found + 1] = (tonumber(late[i + 1]) <= now - ARGV[2] and 'S' or 'M') .. late[i]
end
local ended = redis.call('ZRANGEBYLEX', entries, '[d', '[d' .. struct.pack('>I8', now), 'LIMIT', ARGV[4], ARGV[5])
for i = 1, #ended do found[#found + 1] = ended[i]:sub(10) end
return found
