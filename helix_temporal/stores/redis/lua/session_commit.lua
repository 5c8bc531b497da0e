-- Writes everything of a commit if the revision is still the one that was read, the thread's step among it.
-- KEYS: session, its order, its thread, and where the marks of the index lie on the same server: those
-- ARGV: 1 session id, 2 numbers, 3 state, 4 what the index must know, 5 mark; then fields and kinds with groups that
--   must not be there, fields to remove, kinds with groups to clear, field, order and body of each row to put, and
--   the arguments of a step
-- Numbers: revision, birth or '0' for any, fence, '1' if a state is given, '1' if the session is deleted, '1' if the
--   index must know, milliseconds to live or '-', time from which on it is too late or '-', counts of removes,
--   clears, puts, fields and groups that must not be there
-- Answers: 'I', 'N' revision or birth is another, or something is there that must not be, 'L' too late, 'C' no
--   thread, 'T' a thread's refusal; or time, birth, revision and end of life; the oldest operation; what the index
--   must know, where the caller did not say; what became of the step.
local session, order, marks = KEYS[1], KEYS[2], KEYS[4]
local revision, seen_birth, fence, with_state, deletes, indexed, lives, limit, removes, clears, puts, no_fields,
  no_groups =
  ARGV[2]:match('^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$')
local h = load_session(session, 'd')
if h[1] and h[1] ~= ARGV[1] then return 'I' end
-- rule: stores.sessions.operations.apply_commit
if (h[2] or '0') ~= revision or (seen_birth ~= '0' and h[4] ~= seen_birth) then return 'N' end
local now = now_ms()
if limit ~= '-' and now > tonumber(limit) then return 'L' end
-- So that a key of somebody else's is refused before anything is written.
redis.call('ZCARD', order)
if marks then redis.call('ZCARD', marks) end

local at_no_groups = 6 + no_fields
local at_removes = at_no_groups + no_groups
for i = 6, at_no_groups - 1 do
  if redis.call('HEXISTS', session, ARGV[i]) == 1 then return 'N' end
end
for i = at_no_groups, at_removes - 1 do
  if #group_fields(order, ARGV[i]) > 0 then return 'N' end
end

local at_clears = at_removes + removes
local at_puts = at_clears + clears
local at_step = at_puts + 3 * puts
local step = ''
if at_step <= #ARGV then
  local args = {ARGV[1]}
  for i = at_step, #ARGV do args[#args + 1] = ARGV[i] end
  step = append_step({KEYS[3]}, args)
  if not step then return 'C' end
  if step == 'I' then return 'I' end
  local status = step:sub(1, 1)
  if status ~= 'A' and status ~= 'R' then return 'T' .. step end
end

-- From here on nothing is refused any more.
-- rule: stores.sessions.operations.apply_commit
if not h[1] or deletes == '1' then redis.call('UNLINK', session, order) end
local gone = {}
for i = at_removes, at_clears - 1 do gone[#gone + 1] = ARGV[i] end
for i = at_clears, at_puts - 1 do
  local names = group_fields(order, ARGV[i])
  for j = 1, #names do gone[#gone + 1] = names[j] end
end
take_out(session, order, gone, true)
local fields, set, set_places = {}, {}, {}
for i = at_puts, at_step - 1, 3 do
  local every, grouped = places(ARGV[i], ARGV[i + 1])
  fields[#fields + 1] = ARGV[i]
  set[#set + 1], set[#set + 2] = ARGV[i], ARGV[i + 1] .. ARGV[i + 2]
  set_places[#set_places + 1], set_places[#set_places + 2] = '0', every
  if grouped then set_places[#set_places + 1], set_places[#set_places + 2] = '0', grouped end
end
take_out(session, order, fields, false)
for i = 1, #set_places, PER_CALL do
  redis.call('ZADD', order, unpack(set_places, i, math.min(i + PER_CALL - 1, #set_places)))
end

local birth = h[4]
if not birth then
  local time = redis.call('TIME')
  birth = text(time[1] * 1000000 + time[2])
end
local next_revision = text(revision + 1)
local header = {
  'i', ARGV[1], 'v', next_revision, 'e', fence, 'b', birth, 'h', session_sum(ARGV[1], next_revision, fence, birth),
}
for i = 1, #header do set[#set + 1] = header[i] end
if with_state == '1' then
  local state = {'s', ARGV[3], 'd', ARGV[4]}
  for i = 1, #state do set[#set + 1] = state[i] end
end
write(session, set, 1)

local ends = '-'
if lives == '-' then
  redis.call('PERSIST', session)
  redis.call('PERSIST', order)
else
  ends = text(now + lives)
  redis.call('PEXPIREAT', session, ends)
  redis.call('PEXPIREAT', order, ends)
end
if marks and indexed == '1' then redis.call('ZADD', marks, text(now), ARGV[5]) end
local about = text(now) .. ' ' .. birth .. ' ' .. next_revision .. ' ' .. ends
if indexed == '0' then return {about, '', '', step} end
local untold = deletes == '0' and with_state == '0'
return {about, oldest_operation(order), untold and h[6] or '', step}
