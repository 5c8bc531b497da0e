-- Announces a commit.  ARGV: 1 mark.  Answers: the time.
local marks = KEYS[1]
local now = text(now_ms())
redis.call('ZADD', marks, now, ARGV[1])
return now
