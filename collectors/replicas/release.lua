-- Frees the lease if a replica has it. KEYS[1] is the lease; ARGV[1] the text of the replica.
local held = redis.call('GET', KEYS[1])
if held and string.sub(held, string.find(held, ' ', 1, true) + 1) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1
