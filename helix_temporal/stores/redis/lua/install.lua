-- Makes a thread hot where nothing is, or over what does not continue the archive.
-- KEYS: 1 the hot thread, 2 the staging key that holds the messages, if they are not in ARGV
-- ARGV: 1 thread id, 2 '1' to replace, 3… header, 23 number of staged fields or '', 24… field, messages
local key, staging, h = KEYS[1], KEYS[2], load(KEYS[1])
local new = header_from(3)
local function keep(status)
  if staging then redis.call('UNLINK', staging) end
  return h[ID] == ARGV[1] and reply(status, h) or 'I'
end

-- rule: stores.threads.operations.header_to_install
if h then
  if h[ID] ~= ARGV[1] or ARGV[2] == '0' then return keep('H') end
  local mine, theirs = tonumber(new[EPOCH]), tonumber(h[EPOCH])
  -- rule: stores.threads.fences.Fence.check_not_replaced
  if theirs > mine then return keep('F') end
  if theirs == mine then
    local head = tonumber(new[HEAD])
    -- Below the base: an install that comes late, when the thread is far beyond it.
    if head < tonumber(h[BASE]) or head == 0 or messages(key, h).id_before(head) == new[LAST] then return keep('H') end
    if h[CLOSED] ~= '0' then new[CLOSED] = h[CLOSED] end
  end
end
if staging and redis.call('HLEN', staging) ~= ARGV[23] + 1 then return 'S' end

write_header(staging or key, new)
if staging then
  redis.call('UNLINK', key)
  redis.call('RENAME', staging, key)
elseif h then
  redis.call('UNLINK', key)
  write_header(key, new)
end
write(key, ARGV, 24)
redis.call('PERSIST', key)
return reply('H', new)
