-- What connections tell managers: who is there, what each wants, and which overlaps are expected.
--
-- KEYS: wishes, published, asked, incarnations, connections, alive, expected, gone.
-- ARGV: 'introduce', name, ttl in ms             → the incarnation of a new connection, and when the network began, in ms
--    or 'renew', name, connection, incarnation   → a new one for its events, after that one, or 'superseded'
--    or 'incarnations', ''                       → the last that was given, and the names of all connections
--    or 'beat', name, connection, ttl in ms      → 'ok', 'superseded' or 'back'
--    or 'leave', name, connection
--    or 'want', ttl in ms, then for each: name, connection, said, wish as JSON, how many regions events are to be published to,
--       and these regions                         → as 'beat', for each
--    or 'expect', who, overlaps, two regions and a newline between them each
--
-- What leaders do is in leading.lua: Redis tells apart what users may do by keys and commands, so what a game server
-- runs takes no key of a leader.
--
-- A connection is known by the incarnation that it was introduced with, and is gone when it was not heard of for its ttl.
-- What it wanted is forgotten then; if nobody has had its name when it is heard of again, it is back. 'back' is answered
-- until it tells what it wants.

local wishes, published, asked, incarnations = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local connections, alive, expected, gone = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local verb, name = ARGV[1], ARGV[2]
-- No name has a control character. When the hash was begun: it tells a network from one that was here before.
local BORN = '\n'
local time = redis.call('TIME')
local now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

local function lives(who, ttl_ms)
  redis.call('ZADD', alive, string.format('%.0f', now_ms + tonumber(ttl_ms)), who)
end

local function told(who)
  redis.call('XADD', asked, 'MAXLEN', '=', 1, '*', 'by', who)
end

-- Of all names together, so that none has to be kept. What a name had of its own, as they once had, is below it.
local function next_incarnation(after)
  local drawn, own = redis.call('HINCRBY', incarnations, '', 1), redis.call('HGET', incarnations, name)
  if own then
    redis.call('HDEL', incarnations, name)
  end
  local known = math.max(after, tonumber(own or 0))
  return drawn > known and drawn or redis.call('HINCRBY', incarnations, '', known + 1 - drawn)
end

-- Whether a connection speaks for a name: it is known, or was, and nobody else has been since.
local function speaks(who, connection)
  local current = redis.call('HGET', connections, who) or redis.call('ZSCORE', gone, who)
  return current and tonumber(current) == tonumber(connection)
end

local function is_here(who, connection, ttl_ms)
  if redis.call('HSET', connections, who, connection) == 1 then
    redis.call('ZREM', gone, who)
    lives(who, ttl_ms)
  end
end

if verb == 'introduce' then
  local incarnation = next_incarnation(0)
  redis.call('HSET', connections, name, incarnation)
  redis.call('ZREM', gone, name)
  lives(name, ARGV[3])
  local born = redis.call('HGET', incarnations, BORN)
  if not born then
    born = string.format('%.0f', now_ms)
    redis.call('HSET', incarnations, BORN, born)
  end
  return { incarnation, born }
end

if verb == 'want' then
  local answers, place, news_of = {}, 3, nil
  while ARGV[place] do
    local who, connection, said, wish = ARGV[place], ARGV[place + 1], ARGV[place + 2], ARGV[place + 3]
    local first, last = place + 5, place + 4 + tonumber(ARGV[place + 4])
    if not speaks(who, connection) then
      answers[#answers + 1] = 'superseded'
    else
      answers[#answers + 1] = 'ok'
      is_here(who, connection, name)
      local before = redis.call('HGET', wishes, who)
      local known = before and cjson.decode(before) or { 0, -1 }
      local incarnation = tonumber(connection)
      if known[1] < incarnation or (known[1] == incarnation and known[2] < tonumber(said)) then
        redis.call('HSET', wishes, who, wish)
        news_of = who
      end
      if last >= first and redis.call('SADD', published, unpack(ARGV, first, last)) > 0 then
        news_of = who
      end
    end
    place = last + 1
  end
  if news_of then
    told(news_of)
  end
  return answers
end

if verb == 'renew' or verb == 'beat' or verb == 'leave' then
  if not speaks(name, ARGV[3]) then
    return 'superseded'
  end
  if verb == 'renew' then
    return next_incarnation(tonumber(ARGV[4]))
  elseif verb == 'leave' then
    redis.call('HDEL', wishes, name)
    redis.call('HDEL', connections, name)
    redis.call('ZREM', alive, name)
    redis.call('ZREM', gone, name)
    return 'ok'
  end
  is_here(name, ARGV[3], ARGV[4])
  lives(name, ARGV[4])
  local wish = redis.call('HGET', wishes, name)
  return wish and string.match(wish, '^%[(%d+)') == ARGV[3] and 'ok' or 'back'
end

if verb == 'incarnations' then
  return { tonumber(redis.call('HGET', incarnations, '') or 0), redis.call('HKEYS', connections) }
end

-- 'expect'
if redis.call('SADD', expected, unpack(ARGV, 3)) > 0 then
  told(name)
end
return 'ok'
