-- Rows of a kind, in order.
-- ARGV: 1 session id, 2 kind's letter, 3 lowest and 4 highest place, 5 '1' if from the highest on, 6 limit
-- Answers: how many there are of the kind in all; fields and values.
local session, order = KEYS[1], KEYS[2]
local id = load_session(session)[1]
if id and id ~= ARGV[1] then return 'I' end
-- rule: stores.sessions.operations.page_rows
local kind, found = ARGV[2], nil
if ARGV[5] == '1' then
  found = redis.call('ZREVRANGEBYLEX', order, ARGV[4], ARGV[3], 'LIMIT', 0, ARGV[6])
else
  found = redis.call('ZRANGEBYLEX', order, ARGV[3], ARGV[4], 'LIMIT', 0, ARGV[6])
end
for i = 1, #found do found[i] = field_at(found[i]) end
local total = redis.call('ZLEXCOUNT', order, '[' .. kind .. 'o', '(' .. kind .. 'p')
return add_rows(session, found, {text(total)})
