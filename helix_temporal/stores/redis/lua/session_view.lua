-- State and rows in one instant, and the header of the thread.
-- ARGV: 1 session id, 2 numbers: '1' if the thread is wanted, counts of fields, groups and kinds; then fields, kinds
--   with groups, kinds of which the newest is wanted, and beginnings of places of groups of which the last is
-- Answers: revision, fence, time, '1' if there is a state, and birth; the state; the thread; fields and values of rows.
local session, order = KEYS[1], KEYS[2]
local h = load_session(session, 's')
if h[1] and h[1] ~= ARGV[1] then return 'I' end
local with_thread, fields, groups, kinds = ARGV[2]:match('^(%d) (%d+) (%d+) (%d+)$')
local thread = with_thread == '1' and load(KEYS[3])
if thread and thread[ID] ~= ARGV[1] then return 'I' end

local found = {
  table.concat({h[2] or '0', h[3] or '0', text(now_ms()), h[6] and '1' or '0', h[4] or '0'}, ' '),
  h[6] or '',
  thread and reply('H', thread) or '',
}
-- rule: stores.sessions.operations.select_rows
local names, at = {}, 3
for _ = 1, fields do
  names[#names + 1], at = ARGV[at], at + 1
end
add_rows(session, names, found)
for _ = 1, groups do
  add_rows(session, group_fields(order, ARGV[at]), found)
  at = at + 1
end
local function add_last(lowest, beyond)
  local last = redis.call('ZREVRANGEBYLEX', order, '(' .. beyond, '[' .. lowest, 'LIMIT', 0, 1)
  if last[1] then add_rows(session, {field_at(last[1])}, found) end
end
for _ = 1, kinds do
  add_last(ARGV[at] .. 'o', ARGV[at] .. 'p')
  at = at + 1
end
for i = at, #ARGV do add_last(ARGV[i] .. '\0', ARGV[i] .. '\1') end
return found
