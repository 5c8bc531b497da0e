-- What the index must know of a session, once up to so many of its old operations are removed.
-- ARGV: 1 session id, 2 place that no removed operation reaches, 3 limit (0: only tell)
-- Answers: nothing if there is nothing of it; or time, birth, revision and end of life; the oldest operation; what the
--   index must know; how many were removed.
local session, order = KEYS[1], KEYS[2]
local h = load_session(session, 'd')
if not h[1] then return false end
if h[1] ~= ARGV[1] then return 'I' end
-- rule: stores.sessions.operations.without_old_operations
local old = redis.call('ZRANGEBYLEX', order, '[oo', ARGV[2], 'LIMIT', 0, ARGV[3])
local fields = {}
for i = 1, #old do fields[i] = field_at(old[i]) end
take_out(session, order, fields, true)
local now, left = now_ms(), redis.call('PTTL', session)
local ends = left >= 0 and text(now + left) or '-'
return {
  text(now) .. ' ' .. h[4] .. ' ' .. h[2] .. ' ' .. ends, oldest_operation(order), h[6] or '', text(#old),
}
