-- ARGV: id, after which sequence, how many chunks.  The clock, the head and the entries; nothing if it is not there.
if not row[ID] then return {} end
-- rule: stores.streams.rules.StreamLog.chunks_after
local entries = {}
if ARGV[3] ~= '0' then
  local start = math.max(tonumber(row[FIRST]), tonumber(ARGV[2]) + 1)
  entries = redis.call('XRANGE', chunks, text(start) .. '-0', '+', 'COUNT', ARGV[3])
end
return {now, row, entries}
