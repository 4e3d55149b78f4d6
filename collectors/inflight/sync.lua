-- Keeps a sorted set equal to the endpoints that the replicas of Steelyard agree on (doc.go, "Synchronised members").
-- KEYS[1] is the set and KEYS[2] the hash next to it. ARGV: this replica, how long its list counts, how long a member
-- that is on no list stays, and how long one stays removed whatever pickers write, in milliseconds; then its list.
if redis.replicate_commands then redis.replicate_commands() end -- before Redis 7, TIME before a write needs it
local set, hash = KEYS[1], KEYS[2]
local me, lasts, grace, kept = 'list ' .. ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- What the hash has: lists, the members that are on none (under the name "alien") and those that were removed (gone).
local listed, dropped, alien, gone = {}, {}, {}, {}
local fields = redis.call('HGETALL', hash)
for i = 1, #fields, 2 do
  local kind, name = string.match(fields[i], '^(%a+) (.*)$')
  local at, rest = string.match(fields[i + 1], '^(%d+) ?(.*)$')
  at = tonumber(at)
  if kind == 'list' then
    local live = fields[i] ~= me and at > now
    for member in string.gmatch(rest, '%S+') do
      if live then listed[member] = true else dropped[member] = true end
    end
    if not live then redis.call('HDEL', hash, fields[i]) end
  elseif kind == 'alien' then
    alien[name] = at
  elseif kind == 'gone' and at > now then
    gone[name] = true
  else
    redis.call('HDEL', hash, fields[i])
  end
end
local mine = {}
for i = 5, #ARGV do
  listed[ARGV[i]] = true
  mine[#mine + 1] = ARGV[i]
end
if #mine > 0 then
  redis.call('HSET', hash, me, string.format('%d ', now + lasts) .. table.concat(mine, ' '))
end

-- What the set has too much. A count that comes late, for a member that is gone, does not bring it back.
local present, added, removed = {}, 0, 0
local members = redis.call('ZRANGE', set, 0, -1, 'WITHSCORES')
for i = 1, #members, 2 do
  local member, score = members[i], tonumber(members[i + 1])
  if listed[member] then
    present[member] = score
  elseif gone[member] or dropped[member] or (alien[member] and now - alien[member] >= grace) then
    redis.call('ZREM', set, member)
    redis.call('HSET', hash, 'gone ' .. member, string.format('%d', now + kept))
    if alien[member] then redis.call('HDEL', hash, 'alien ' .. member) end
    if not gone[member] then removed = removed + 1 end
  elseif not alien[member] then
    redis.call('HSET', hash, 'alien ' .. member, string.format('%d', now))
  end
end
for member in pairs(alien) do
  if listed[member] or not redis.call('ZSCORE', set, member) then redis.call('HDEL', hash, 'alien ' .. member) end
end

-- What it lacks. One that comes back begins with zero, too: pickers that count by scripts subtract nothing while it is
-- away, so what it had then would never leave it. What others subtract late is raised to zero.
for _, member in ipairs(mine) do
  local score = present[member]
  if score == nil or score < 0 then redis.call('ZADD', set, 0, member) end
  if score == nil then added = added + 1 end
  if gone[member] then redis.call('HDEL', hash, 'gone ' .. member) end
end
redis.call('PEXPIRE', hash, math.max(lasts, kept) + grace)
return {added, removed}
