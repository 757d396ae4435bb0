-- The roster of a network: the twin of sequencing/roster.py, which explains it.
--
-- KEYS: state, members, alive, participants, incarnations.
-- ARGV: verb, name, incarnation (0 where it does not matter), ttl_ms, then regions for subscribe and unsubscribe.

local state, members, alive, participants, incarnations = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local verb, name, incarnation, ttl_ms = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local time = redis.call('TIME')
local now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

local function beat()
  redis.call('ZADD', alive, string.format('%.0f', now_ms + ttl_ms), name)
end

local function lives(who)
  local until_ms = redis.call('ZSCORE', alive, who)
  return until_ms and tonumber(until_ms) > now_ms
end

local function epoch()
  return tonumber(redis.call('HGET', state, 'epoch') or '1')
end

local function settled()
  return redis.call('HGET', state, 'settled') == '1'
end

local function regions_of(who)
  local packed = redis.call('HGET', members, who)
  local set = {}
  if packed then
    for _, region in ipairs(cjson.decode(packed)) do
      set[region] = true
    end
  end
  return set
end

local function keep(who, set)
  local list = {}
  for region in pairs(set) do
    list[#list + 1] = region
  end
  redis.call('HSET', members, who, #list > 0 and cjson.encode(list) or '[]')
end

local function next_incarnation()
  beat()
  return redis.call('HINCRBY', incarnations, name, 1)
end

if verb == 'introduce' then
  redis.call('SREM', participants, name)
  if not settled() then
    redis.call('HDEL', members, name)
  end
  return next_incarnation()
end

if verb == 'settle' then
  if not settled() then
    for _, who in ipairs(redis.call('HKEYS', members)) do
      if not lives(who) then
        redis.call('HDEL', members, who)
      end
    end
    redis.call('HSET', state, 'settled', '1', 'epoch', string.format('%.0f', epoch()))
  end
  return { epoch(), redis.call('HGETALL', members) }
end

if verb == 'reopen' then
  redis.call('HSET', state, 'settled', '0')
  return 1
end

-- What follows is for the newest connection of a name only.
if redis.call('HGET', incarnations, name) ~= incarnation then
  return 'superseded'
end

if verb == 'renew' then
  return next_incarnation()
end

if verb == 'beat' then
  beat()
  return 1
end

if verb == 'subscribed' then
  return redis.call('HGET', members, name) or '[]'
end

if verb == 'publishing' then
  redis.call('SADD', participants, name)
  return settled() and epoch() or -epoch()
end

if verb == 'subscribe' then
  if settled() then
    for _, who in ipairs(redis.call('SMEMBERS', participants)) do
      if lives(who) then
        return 'settled'
      end
    end
    redis.call('HSET', state, 'settled', '0', 'epoch', string.format('%.0f', epoch() + 1))
    redis.call('DEL', members, participants)
  end
  local set = regions_of(name)
  for i = 5, #ARGV do
    set[ARGV[i]] = true
  end
  keep(name, set)
  redis.call('SADD', participants, name)
  beat()
  return epoch()
end

if verb == 'unsubscribe' then
  if settled() then
    return 0
  end
  local set = regions_of(name)
  for i = 5, #ARGV do
    set[ARGV[i]] = nil
  end
  keep(name, set)
  return 1
end

if verb == 'leave' then
  redis.call('ZREM', alive, name)
  redis.call('SREM', participants, name)
  if not settled() then
    redis.call('HDEL', members, name)
  end
  return 1
end

return redis.error_reply('ERR unknown verb ' .. verb)
