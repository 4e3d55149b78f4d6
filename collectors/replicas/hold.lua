-- Renews the lease of a replica, or takes it where nobody has it, and returns who has it: the epoch, a space, and the
-- text of the owner. KEYS: the lease, the latest epoch. ARGV: the text of the replica, which is unique; for how many
-- milliseconds the lease is kept; the highest epoch that the replica has seen.
local held, floor = redis.call('GET', KEYS[1]), tonumber(ARGV[3])
if held then
  local space = string.find(held, ' ', 1, true)
  if string.sub(held, space + 1) ~= ARGV[1] then return held end
  if tonumber(string.sub(held, 1, space - 1)) >= floor then
    redis.call('SET', KEYS[1], held, 'PX', ARGV[2])
    return held
  end
end
local epoch = string.format('%.0f', math.max(tonumber(redis.call('GET', KEYS[2]) or '0'), floor) + 1)
redis.call('SET', KEYS[2], epoch)
held = epoch .. ' ' .. ARGV[1]
redis.call('SET', KEYS[1], held, 'PX', ARGV[2])
return held
