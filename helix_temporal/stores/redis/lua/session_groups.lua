-- Groups that have rows of a kind, in order: one look into the places for each group.
-- ARGV: 1 session id, 2 beginning of the first group's places, 3 that of the group before which to stop, 4 limit
-- Answers: the beginnings of the places of those that are there.
local session, order = KEYS[1], KEYS[2]
local id = load_session(session)[1]
if id and id ~= ARGV[1] then return 'I' end
local found, lowest = {}, ARGV[2]
for i = 1, ARGV[4] do
  local next = redis.call('ZRANGEBYLEX', order, '[' .. lowest, '(' .. ARGV[3], 'LIMIT', 0, 1)[1]
  if not next then break end
  found[i] = next:sub(1, next:find('\0', 3, true) - 1)
  lowest = found[i] .. '\1'
end
return found
