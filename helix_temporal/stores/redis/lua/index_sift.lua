-- Those of a range of facet entries whose sessions have other facets as well.
-- ARGV: 1 lowest and 2 highest entry, 3 how many to look at, 4 'c' or 'u': the order asked for; then groups of facets,
--   16 bytes each, of which one must be there
-- Answers: the last entry looked at, '' if that was all; time and id of those that match.
local rows, entries = KEYS[1], KEYS[2]
local looked = redis.call('ZRANGEBYLEX', entries, ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3])
if #looked == 0 then return {''} end
local ids, found, time = {}, {''}, ARGV[4] == 'c' and 1 or 9
if #looked == tonumber(ARGV[3]) then found[1] = looked[#looked] end
for i = 1, #looked do ids[i] = looked[i]:sub(27) end

local function has_one(facets, group)
  for i = 1, #group, 16 do
    if facets:find(group:sub(i, i + 15), 1, true) then return true end
  end
  return false
end

local held = redis.call('HMGET', rows, unpack(ids))
for i = 1, #ids do
  local row = held[i]
  if row then
    local at = opened(row)
    local facets = row:sub(at + 38, at + 37 + 16 * struct.unpack('>I4', row, at + 34))
    local matches = true
    for j = 5, #ARGV do matches = matches and has_one(facets, ARGV[j]) end
    if matches then found[#found + 1] = row:sub(at + time, at + time + 7) .. ids[i] end
  end
end
return found
