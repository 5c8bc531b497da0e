-- Takes out those of these entries that the session's row does not have.  ARGV: 1 session id; then entries
local rows, entries = KEYS[1], KEYS[2]
local row, gone = redis.call('HGET', rows, ARGV[1]), {}
local own = row and entries_of(ARGV[1], row) or {}
for i = 2, #ARGV do
  if not own[ARGV[i]] then gone[#gone + 1] = ARGV[i] end
end
in_parts('ZREM', entries, gone)
return text(#gone)
