-- What connections tell managers: who is there, what each wants, and which overlaps are expected.
--
-- KEYS: connections; the others are beside it: wishes, published, asked, incarnations, alive, expected, gone, sole, said,
--    superseded, and the regions of each connection to a network of one node, rows:NAME.
-- ARGV: 'introduce', name, ttl in ms             → the incarnation of a new connection, and when the network began, in ms
--    or 'renew', name, connection, incarnation   → a new one for its events, after that one, or 'superseded'
--    or 'incarnations', ''                       → the last that was given, and the names of all connections
--    or 'beat', ttl in ms, then for each: name, connection
--                                                 → 'ok', 'superseded' or 'back', for each
--    or 'leave', name, connection
--    or 'want', ttl in ms, then for each: name, connection, said, wish as JSON, how many regions events are to be published to,
--       and these regions                         → as 'beat', for each
--    or 'join', ttl in ms, then for each: name, connection, said, '1' if it is all that is wanted, else '0', how many
--       regions are wanted from now on, how many are not any more, and these
--                                                 → 'ok', 'superseded', or 'plan' where not one node has all, for each
--    or 'expect', who, overlaps, two regions and a newline between them each
--
-- What leaders do is in leading.lua: Redis tells apart what users may do by keys and commands, so what a game server
-- runs takes no key of a leader.
--
-- A connection is known by the incarnation that it was introduced with, and is gone when it was not heard of for its ttl.
-- What it wanted is forgotten then; if nobody has had its name when it is heard of again, it is back. 'back' is answered
-- until it tells what it wants.

local connections, prefix = KEYS[1], string.match(KEYS[1], '^(.*:)')
local wishes, published, asked = prefix .. 'wishes', prefix .. 'published', prefix .. 'asked'
local incarnations, alive, expected = prefix .. 'incarnations', prefix .. 'alive', prefix .. 'expected'
local gone, sole, all_said, superseded = prefix .. 'gone', prefix .. 'sole', prefix .. 'said', prefix .. 'superseded'
local all_rows = prefix .. 'rows:'
-- Who has not read these has a heartbeat before so many have come.
local SUPERSEDED_MAX = 64
-- Lua's unpack is limited by its C stack (8,000 slots).
local CHUNK = 4000
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

local function forget_rows(who)
  redis.call('DEL', all_rows .. who)
  redis.call('HDEL', all_said, who)
end

local function is_here(who, connection, ttl_ms)
  if redis.call('HSET', connections, who, connection) == 1 then
    redis.call('ZREM', gone, who)
    lives(who, ttl_ms)
  end
end

if verb == 'introduce' then
  local incarnation = next_incarnation(0)
  if redis.call('HSET', connections, name, incarnation) == 0 then
    redis.call('XADD', superseded, 'MAXLEN', '=', SUPERSEDED_MAX, '*', name, incarnation)
  end
  redis.call('ZREM', gone, name)
  forget_rows(name)
  lives(name, ARGV[3])
  local born = redis.call('HGET', incarnations, BORN)
  if not born then
    born = string.format('%.0f', now_ms)
    redis.call('HSET', incarnations, BORN, born)
    told(name) -- the leader begins the network
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

if verb == 'join' then
  local answers, place, is_sole = {}, 3, redis.call('EXISTS', sole) == 1
  while ARGV[place] do
    local who, connection, said = ARGV[place], ARGV[place + 1], ARGV[place + 2]
    local first = place + 6
    local last = first + tonumber(ARGV[place + 4]) - 1
    local last_left = last + tonumber(ARGV[place + 5])
    answers[#answers + 1] = not speaks(who, connection) and 'superseded' or is_sole and 'ok' or 'plan'
    if answers[#answers] == 'ok' then
      is_here(who, connection, name)
      local before, said_before = string.match(redis.call('HGET', all_said, who) or '', '^(%d+) (%d+)$')
      -- An earlier request may have been held up on its way.
      if before ~= connection or tonumber(said) >= tonumber(said_before) then
        if ARGV[place + 3] == '1' or before ~= connection then
          forget_rows(who)
        end
        local rows = all_rows .. who
        for from = first, last, CHUNK do
          redis.call('SADD', rows, unpack(ARGV, from, math.min(from + CHUNK - 1, last)))
        end
        for from = last + 1, last_left, CHUNK do
          redis.call('SREM', rows, unpack(ARGV, from, math.min(from + CHUNK - 1, last_left)))
        end
        redis.call('HSET', all_said, who, connection .. ' ' .. said)
      end
    end
    place = last_left + 1
  end
  return answers
end

if verb == 'beat' then
  local answers = {}
  for place = 3, #ARGV, 2 do
    local who, connection = ARGV[place], ARGV[place + 1]
    if not speaks(who, connection) then
      answers[#answers + 1] = 'superseded'
    else
      is_here(who, connection, name)
      lives(who, name)
      local known = redis.call('HGET', all_said, who) or redis.call('HGET', wishes, who)
      answers[#answers + 1] = known and string.match(known, '^%[?(%d+)') == connection and 'ok' or 'back'
    end
  end
  return answers
end

if verb == 'renew' or verb == 'leave' then
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
    forget_rows(name)
    return 'ok'
  end
end

if verb == 'incarnations' then
  return { tonumber(redis.call('HGET', incarnations, '') or 0), redis.call('HKEYS', connections) }
end

-- 'expect'
if redis.call('SADD', expected, unpack(ARGV, 3)) > 0 then
  told(name)
end
return 'ok'
