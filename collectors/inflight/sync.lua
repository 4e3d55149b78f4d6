-- Keeps a sorted set equal to the endpoints that the replicas of Steelyard agree on (doc.go, "Members kept in step").
-- KEYS[1] is the set and KEYS[2] the hash next to it. ARGV: this replica, how long its list counts, how long a member
-- that is on no list stays, and how long the count of a removed member is kept, in milliseconds; then its list.
if redis.replicate_commands then redis.replicate_commands() end -- before Redis 7, TIME before a write needs it
local set, hash = KEYS[1], KEYS[2]
local me, lasts, grace, kept = 'list ' .. ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- What the hash has: lists, the members that are on none (alien) and the counts of removed ones (gone).
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
    gone[name] = tonumber(rest)
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

-- What the set has too much. A count that comes late, for a member that is gone, is added to what is kept of it.
local present, added, removed = {}, 0, 0
local members = redis.call('ZRANGE', set, 0, -1, 'WITHSCORES')
for i = 1, #members, 2 do
  local member, score = members[i], tonumber(members[i + 1])
  if listed[member] then
    present[member] = score
  elseif gone[member] or dropped[member] or (alien[member] and now - alien[member] >= grace) then
    redis.call('ZREM', set, member)
    if score == math.huge or score == -math.huge then score = 0 end -- no count
    redis.call('HSET', hash, 'gone ' .. member, string.format('%d %.17g', now + kept, (gone[member] or 0) + score))
    if alien[member] then redis.call('HDEL', hash, 'alien ' .. member) end
    if not gone[member] then removed = removed + 1 end
  elseif not alien[member] then
    redis.call('HSET', hash, 'alien ' .. member, string.format('%d', now))
  end
end
for member in pairs(alien) do
  if listed[member] or not redis.call('ZSCORE', set, member) then redis.call('HDEL', hash, 'alien ' .. member) end
end

-- What it lacks. One that comes back has the requests that it still had, and no count is below zero.
for _, member in ipairs(mine) do
  local score = present[member]
  if score == nil or gone[member] or score < 0 then
    local start = math.max(0, (gone[member] or 0) + (score or 0))
    redis.call('ZADD', set, string.format('%.17g', start), member)
    if gone[member] then redis.call('HDEL', hash, 'gone ' .. member) end
    if score == nil then added = added + 1 end
  end
end
redis.call('PEXPIRE', hash, math.max(lasts, kept) + grace)
return {added, removed}
