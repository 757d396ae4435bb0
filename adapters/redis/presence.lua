-- Which connections are present in which regions, so that somebody can say that they left when they cannot.
--
-- KEYS: present: member → until when it is there, in ms. Beside it present:MEMBER: region → the position of its arrival there,
--    '' while it is not known, and what follows. A member is a connection: its name, a newline, its incarnation.
-- ARGV: 'be', member, ttl in ms, last incarnation, then region and position for each      → 'ok' or 'gone'
--    or 'beat', member, ttl in ms                                                        → 'ok' or 'gone'
--    or 'left', member, then regions
--    or 'end', member                                                                    it will not be heard of again
--    or 'due', '', how many       → of those not heard of for their ttl: member, and all of it; they are gone from now on
--    or 'ended', member                                                                  its leaves are published

local present, all = KEYS[1], KEYS[1] .. ':'
local verb, member = ARGV[1], ARGV[2]
-- No region has a control character.
local GONE, INCARNATION = '\n', '\n\n'
local time = redis.call('TIME')
local now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

local function lives(ttl_ms)
  redis.call('ZADD', present, string.format('%.0f', now_ms + tonumber(ttl_ms)), member)
end

if verb == 'be' then
  if redis.call('HEXISTS', all .. member, GONE) == 1 then
    return 'gone'
  end
  redis.call('HSET', all .. member, INCARNATION, ARGV[4])
  for at = 5, #ARGV, 2 do
    redis.call('HSET', all .. member, ARGV[at], ARGV[at + 1])
  end
  lives(ARGV[3])
  return 'ok'
elseif verb == 'beat' then
  if redis.call('HEXISTS', all .. member, GONE) == 1 or not redis.call('ZSCORE', present, member) then
    return 'gone'
  end
  lives(ARGV[3])
  return 'ok'
elseif verb == 'left' then
  for at = 3, #ARGV do
    redis.call('HDEL', all .. member, ARGV[at])
  end
  if redis.call('HLEN', all .. member) <= 1 and redis.call('HEXISTS', all .. member, GONE) == 0 then
    redis.call('DEL', all .. member)
    redis.call('ZREM', present, member)
  end
elseif verb == 'end' then
  if redis.call('ZSCORE', present, member) then
    redis.call('ZADD', present, '0', member)
  end
elseif verb == 'due' then
  local found = {}
  for _, who in ipairs(redis.call('ZRANGEBYSCORE', present, '-inf', '(' .. now_ms, 'LIMIT', 0, ARGV[3])) do
    redis.call('HSET', all .. who, GONE, '1')
    found[#found + 1] = { who, redis.call('HGETALL', all .. who) }
  end
  return found
elseif verb == 'ended' then
  redis.call('DEL', all .. member)
  redis.call('ZREM', present, member)
end
return 'ok'
