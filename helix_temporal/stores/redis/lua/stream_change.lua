-- ARGV: id, made, revision, last sequence (or empty) that were seen; fence, status, facts, chunk and its sequence (or
-- empty), ttl.
-- The last sequence; nothing if the stream is not what was seen.
-- rule: stores.streams.rules.head_after_change
if not row[ID] or row[MADE] ~= ARGV[2] or row[REVISION] ~= ARGV[3] then return {} end
if (ARGV[4] ~= '' and row[LAST] ~= ARGV[4]) or lower(ARGV[5] == '' and '0' or ARGV[5], row[FENCE]) then
  return {}
end
local first, last, revision = row[FIRST], row[LAST], text(tonumber(row[REVISION]) + 1)
-- rule: stores.streams.rules.StreamLog.change_status
if ARGV[8] ~= '' then
  last = ARGV[9]
  first = last
  redis.call('XTRIM', chunks, 'MAXLEN', '0')
  redis.call('UNLINK', keys)
  add_chunk(last, '', ARGV[8])
end
redis.call('XADD', chunks, last .. '-' .. revision, 's', ARGV[6])
row[STATUS], row[FENCE], row[FIRST], row[LAST], row[REVISION], row[UPDATED], row[FACTS] =
  ARGV[6], ARGV[5], first, last, revision, now, ARGV[7]
keep(ARGV[10], true)
return {last}
