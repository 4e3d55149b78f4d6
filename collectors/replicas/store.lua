-- Writes the state of a replica into the hash of all. KEYS[1] is the hash; ARGV: the replica, for how many milliseconds
-- its state is valid, and the state.
if redis.replicate_commands then redis.replicate_commands() end -- before Redis 7, TIME before a write needs it
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSET', KEYS[1], ARGV[1], string.format('%d ', now + tonumber(ARGV[2])) .. ARGV[3])
redis.call('PEXPIRE', KEYS[1], 2 * tonumber(ARGV[2]))
return 1
