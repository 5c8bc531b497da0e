-- Makes a row anew, unless it is not what the caller has seen any more.
-- ARGV: 1 session id, 2 the row that was seen, 3 birth, '' to forget the session, 4 revision, 5 oldest operation or '',
--   6 end of life or '', 7 what the index must know
local rows, entries = KEYS[1], KEYS[2]
if redis.call('HGET', rows, ARGV[1]) ~= ARGV[2] then return '0' end
if ARGV[3] == '' then
  redis.call('HDEL', rows, ARGV[1])
  return '1'
end
local row, add = fresh_row(ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]), {}
redis.call('HSET', rows, ARGV[1], row)
for entry in pairs(entries_of(ARGV[1], row)) do add[#add + 1], add[#add + 2] = '0', entry end
in_parts('ZADD', entries, add)
return '1'
