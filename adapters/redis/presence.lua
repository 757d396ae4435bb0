-- Which connections are present in which regions, so that somebody can say that they left when they cannot.
--
-- KEYS: present: member → until when it is there, in ms. Beside it present:MEMBER: region → the position of its arrival there,
--    '' while it is not known, and what follows. A member is a connection: its name, a newline, its incarnation.
-- ARGV: 'be', member, ttl in ms, last incarnation, 1 if it has registered before, then region and position for
--       each                                                                           → 'ok' or 'gone'
--    or 'beat', member, ttl in ms                                                        → 'ok' or 'gone'
--    or 'left', member, then regions
--    or 'end', member                                                                    it will not be heard of again
--    or 'due', '', how many, ms, ms, ms  → of those not heard of for their ttl: member, and all of it; they are gone from now on.
--       They are not handed out again for the first ms. Where no call came for the second ms, this server was away: for as
--       long again there are none, and those that live are heard of first. So it is where the clock went back, and then
--       none is there for longer than the last ms, a ttl: by the old time they would stay for as long as it went back
--    or 'ended', member                                                                  its leaves are published

local present, all = KEYS[1], KEYS[1] .. ':'
local verb, member = ARGV[1], ARGV[2]
-- No region has a control character.
local GONE, INCARNATION = '\n', '\n\n'
-- When somebody looked last, and since when somebody does without a break: beside the members.
local LOOKED, SINCE = 'looked', 'since'
local time = redis.call('TIME')
local now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

local function lives(ttl_ms)
  redis.call('ZADD', present, string.format('%.0f', now_ms + tonumber(ttl_ms)), member)
end

if verb == 'be' then
  if redis.call('HEXISTS', all .. member, GONE) == 1 or (ARGV[5] == '1' and not redis.call('ZSCORE', present, member)) then
    return 'gone'
  end
  redis.call('HSET', all .. member, INCARNATION, ARGV[4])
  for at = 6, #ARGV, 2 do
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
  local known = redis.pcall('HMGET', all, LOOKED, SINCE)
  if known.err then -- another program has written there
    redis.call('DEL', all)
    known = {}
  end
  local looked = tonumber(known[1] or '') or 0
  local since = math.min(tonumber(known[2] or '') or 0, now_ms)
  if now_ms < looked then
    since = now_ms
    local latest = now_ms + tonumber(ARGV[6])
    for _, who in ipairs(redis.call('ZRANGEBYSCORE', present, '(' .. string.format('%.0f', latest), '+inf')) do
      redis.call('ZADD', present, string.format('%.0f', latest), who)
    end
  elseif now_ms - looked > tonumber(ARGV[5]) and redis.call('EXISTS', present) == 1 then
    since = now_ms
  end
  redis.call('HSET', all, LOOKED, string.format('%.0f', now_ms), SINCE, string.format('%.0f', since))
  if now_ms - since < tonumber(ARGV[5]) then
    return {}
  end
  local absent = {}
  for _, who in ipairs(redis.call('ZRANGEBYSCORE', present, '-inf', '(' .. now_ms, 'LIMIT', 0, ARGV[3])) do
    local marked = redis.pcall('HSET', all .. who, GONE, '1')
    if type(marked) == 'table' and marked.err then
      redis.call('DEL', all .. who)
      redis.call('HSET', all .. who, GONE, '1')
    end
    redis.call('ZADD', present, string.format('%.0f', now_ms + tonumber(ARGV[4])), who)
    absent[#absent + 1] = { who, redis.call('HGETALL', all .. who) }
  end
  return absent
elseif verb == 'ended' then
  redis.call('DEL', all .. member)
  redis.call('ZREM', present, member)
end
return 'ok'
