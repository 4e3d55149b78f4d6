-- Brings what one replica of Steelyard counts into the scores of a sorted set, and returns what others count there
-- (doc.go, "Counts that are added"). KEYS[1] is the set and KEYS[2] the hash of what is in its scores by each replica.
-- ARGV: this replica, how long its counts stay in milliseconds, the most members, and its counts as a JSON object.
if redis.replicate_commands then redis.replicate_commands() end -- before Redis 7, TIME before a write needs it
local set, hash, me = KEYS[1], KEYS[2], ARGV[1]
if redis.call('ZCARD', set) > tonumber(ARGV[3]) then return redis.error_reply('TOOMANY members') end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function add(to, counts)
  local ok, decoded = pcall(cjson.decode, counts)
  for member, n in pairs(ok and type(decoded) == 'table' and decoded or {}) do
    n = tonumber(n)
    if n and n > 0 and n < 1e15 then to[member] = (to[member] or 0) + n end -- and not NaN
  end
end

-- What of each score was added, and what is to be. A replica that has not written for long has died.
local was, is = {}, {}
local fields = redis.pcall('HGETALL', hash)
if fields.err then return {err = string.gsub(fields.err, '^WRONGTYPE', 'NOHASH')} end
for i = 1, #fields, 2 do
  local at, counts = string.match(fields[i + 1], '^(%d+) (.*)$')
  add(was, counts or '')
  if fields[i] ~= me then
    if at and tonumber(at) > now then add(is, counts) else redis.call('HDEL', hash, fields[i]) end
  end
end
add(is, ARGV[4])
if ARGV[4] ~= '{}' then
  redis.call('HSET', hash, me, string.format('%d ', now + tonumber(ARGV[2])) .. ARGV[4])
else
  redis.call('HDEL', hash, me)
end

-- A member that came after its counts, or from which others subtracted too much, has less than was added.
local out = {}
local members = redis.call('ZRANGE', set, 0, -1, 'WITHSCORES')
for i = 1, #members, 2 do
  local member, score = members[i], tonumber(members[i + 1])
  local others = math.max(0, score - (was[member] or 0))
  local due = others + (is[member] or 0)
  if due ~= score then redis.call('ZADD', set, string.format('%.17g', due), member) end
  out[#out + 1] = member
  out[#out + 1] = string.format('%.17g', others)
end
return out
