-- Lists sessions by several filters: those of a range of facet entries whose sessions have other facets as well.
-- ARGV: 1 lowest and 2 highest entry, 3 '1' if from the highest on, 4 how many to look at, 5 how many to show at most,
--   6 'c' or 'u' if they are to be shown with their other time, else ''; then groups of facets, 16 bytes each, of
--   which one must be there
-- Answers: the last entry looked at, '' if that was all; how many match; time and id of those that are shown.
local rows, entries = KEYS[1], KEYS[2]
local looked
if ARGV[3] == '1' then
  looked = redis.call('ZREVRANGEBYLEX', entries, ARGV[2], ARGV[1], 'LIMIT', 0, ARGV[4])
else
  looked = redis.call('ZRANGEBYLEX', entries, ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[4])
end
local most, time, count, found = tonumber(ARGV[5]), ARGV[6], 0, {'', ''}
if #looked == tonumber(ARGV[4]) then found[1] = looked[#looked] end

-- A session's entries differ in the facet only.
local function has_one(group, rest)
  for i = 1, #group, 16 do
    if redis.call('ZSCORE', entries, 'f' .. group:sub(i, i + 15) .. rest) then return true end
  end
  return false
end

local function place(rest)
  if time == '' then return rest:sub(2) end
  local id = rest:sub(10)
  local row = redis.call('HGET', rows, id)
  local at = row and opened(row)
  if not at then return ('\0'):rep(8) .. id end
  at = at + (time == 'c' and 1 or 9)
  return row:sub(at, at + 7) .. id
end

-- rule: stores.sessions.operations.matches_query
for i = 1, #looked do
  local rest, matches = looked[i]:sub(18), true
  for j = 7, #ARGV do matches = matches and has_one(ARGV[j], rest) end
  if matches then
    count = count + 1
    if count <= most then found[#found + 1] = place(rest) end
  end
end
found[2] = text(count)
return found
