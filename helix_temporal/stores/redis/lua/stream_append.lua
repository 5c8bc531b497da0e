-- ARGV: id, made, '1' to make it, fence, run id, most chunks (0 for all), ttl, then dedup key and body of each.
-- 'ok', made, the last sequence and that of each chunk; or why nothing was written, and the fence or status that is in the way.
-- rule: stores.streams.rules.admit_batch
local create, most = ARGV[3] ~= '', tonumber(ARGV[6])
if not row[ID] or (row[MADE] ~= ARGV[2] and not create) then
  if not create then return {'absent'} end
  redis.call('UNLINK', chunks, keys)  -- what is left of one whose head was evicted
  row = {ARGV[1], ARGV[2], 'active', '', '1', '0', '0', now, now, '{}', '0'}
end
if lower(ARGV[4], row[FENCE]) then return {'fenced', row[FENCE]} end

local known, fresh = {}, 0
for at = 8, #ARGV, 2 do
  known[at] = ARGV[at] ~= '' and redis.call('HGET', keys, ARGV[at])
  if not known[at] then fresh = fresh + 1 end
end
if row[STATUS] ~= 'active' and (create or fresh > 0 or #ARGV < 8) then return {'closed', row[STATUS]} end

-- rule: stores.streams.rules.StreamLog.append_batch
local answer = {'ok', row[MADE], ''}
local first, last = tonumber(row[FIRST]), tonumber(row[LAST])
local new = last == 0  -- a key may be made now, which has no time to live yet
for at = 8, #ARGV, 2 do
  if known[at] then
    answer[#answer + 1] = known[at]
  else
    last = last + 1
    local sequence = text(last)
    add_chunk(sequence, ARGV[5], ARGV[at + 1])
    if ARGV[at] ~= '' then
      redis.call('HSET', keys, ARGV[at], sequence)
      new = true
    end
    answer[#answer + 1] = sequence
  end
end
-- rule: stores.streams.rules.StreamLog._trim_chunks
if most > 0 and last - first >= most then
  local before = first
  first = last - most + 1
  if math.floor(first / 64) > math.floor(before / 64) then  -- readers go by the head: what is left is not read
    redis.call('XTRIM', chunks, 'MAXLEN', '~', text(most + tonumber(row[REVISION])))
  end
end
if ARGV[4] ~= '' then row[FENCE] = ARGV[4] end
row[FIRST], row[LAST], row[UPDATED] = text(first), text(last), now
keep(ARGV[7], new)
answer[3] = row[LAST]
return answer
