-- Drops a hot thread whose header is damaged, unless it holds something that the archive lacks.
-- ARGV: 1 thread id, 2 position up to which the archive holds the messages, 3 slice that it holds
-- Answers: '1' if it is gone.
local key = KEYS[1]
if pcall(load, key) then return '0' end

-- rule: stores.threads.operations.may_drop_damaged
local names, last = redis.call('HKEYS', key), -1
for i = 1, #names do
  local digits, body = names[i]:match('^(%d+)(b?)$')
  if digits then
    if tonumber(digits) >= tonumber(ARGV[2]) then return '0' end
    if body == '' then last = math.max(last, tonumber(digits)) end
  end
end
if last >= 0 then
  local m = messages(key, {[BASE] = '0', [HEAD] = '0'})
  local sound, count = pcall(m.measure, redis.call('HGET', key, text(last)), last, last)
  if not sound or last + count > tonumber(ARGV[2]) then return '0' end
end
if redis.call('HGET', key, NAMES[SLICE]) ~= ARGV[3] then return '0' end
redis.call('UNLINK', key)
return '1'
