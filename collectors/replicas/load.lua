-- Returns the states in the hash of all replicas, and removes those that are not valid any more. KEYS[1] is the hash.
if redis.replicate_commands then redis.replicate_commands() end -- before Redis 7, TIME before a write needs it
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local states, fields = {}, redis.call('HGETALL', KEYS[1])
for i = 1, #fields, 2 do
  local space = string.find(fields[i + 1], ' ', 1, true)
  local at = space and tonumber(string.sub(fields[i + 1], 1, space - 1))
  if at and at > now then
    states[#states + 1] = string.sub(fields[i + 1], space + 1)
  else
    redis.call('HDEL', KEYS[1], fields[i])
  end
end
return states
