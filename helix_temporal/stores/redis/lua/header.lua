-- The header alone.  ARGV: 1 thread id
local h = load(KEYS[1])
if not h then return false end
if h[ID] ~= ARGV[1] then return 'I' end
return reply('H', h)
