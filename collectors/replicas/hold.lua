-- Renews the lease of a replica, or takes it where nobody has it, and returns who has it: the epoch, a space, and the
-- text of the owner. KEYS: the lease, the latest epoch. ARGV: the text of the replica, which is unique; for how many
-- milliseconds the lease is kept; the highest epoch that the replica has seen. An owner with a lower one, as after a
-- loss of data, has a higher one from then on, whoever asks.
local held, latest = redis.call('GET', KEYS[1]), tonumber(redis.call('GET', KEYS[2]) or '0')
local owner, epoch = ARGV[1], -1
if held then
  local space = string.find(held, ' ', 1, true)
  owner, epoch = string.sub(held, space + 1), tonumber(string.sub(held, 1, space - 1))
end
local floor = math.max(tonumber(ARGV[3]), latest)
if epoch < floor then
  epoch = floor + 1
  redis.call('SET', KEYS[2], string.format('%.0f', epoch))
  held = string.format('%.0f', epoch) .. ' ' .. owner
  redis.call('SET', KEYS[1], held, 'PX', ARGV[2])
elseif owner == ARGV[1] then
  redis.call('SET', KEYS[1], held, 'PX', ARGV[2])
end
return held
