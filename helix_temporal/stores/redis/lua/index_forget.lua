-- Forgets a session if the index knows of exactly this commit.  ARGV: 1 session id, 2 birth, 3 revision
local rows, entries = KEYS[1], KEYS[2]
local row = redis.call('HGET', rows, ARGV[1])
if not row then return '0' end
local birth, revision = row:match('^(%d+) (%d+) ')
if birth ~= ARGV[2] or revision ~= ARGV[3] then return '0' end
local gone = {}
for entry in pairs(entries_of(ARGV[1], row)) do gone[#gone + 1] = entry end
redis.call('HDEL', rows, ARGV[1])
in_parts('ZREM', entries, gone)
return '1'
