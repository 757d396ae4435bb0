-- What managers and connections tell each other: who is there, wishes, the record of what is so, and who leads.
--
-- KEYS: record, wishes, published, lease, news, asked, incarnations, connections, alive, looked, nodes, lossy, expected,
-- led, parts, held, gone.
-- ARGV: 'introduce', name, ttl in ms             → the incarnation of a new connection
--    or 'renew', name, connection, incarnation   → a new one for its events, after that one, or 'superseded'
--    or 'incarnations', ''                       → the last that was given, and the names of all connections
--    or 'beat', name, connection, ttl in ms      → 'ok', 'superseded' or 'back'
--    or 'leave', name, connection
--    or 'want', ttl in ms, then for each: name, connection, said, wish as JSON, how many regions events are to be published to,
--       and these regions                         → as 'beat', for each
--    or 'register', node, url, '1' if it may lose something, else '0' → 'ok', or the url that it is registered at
--    or 'expect', who, overlaps, two regions and a newline between them each
--    or 'look', token, lease in ms, the longest time between two looks in ms, unless something is wrong, ttl in ms, and
--       the pulse, as told before, that stood still for longer than a lease, else ''
--                                                 → 0 and the pulse of the lease, or 1 and what there is
--    or 'keep', token, lease in ms                → whether the lease is still held
--    or 'save', token, story of the record, then parts, digest and text each
--                                                 → 'parts', and nothing done, if a part is neither here nor given
--    or 'announce', token, epoch, version, how many to keep, story of the news, then parts → as 'save'
--    or 'settle', token, epoch, version, how many to keep, story of the news, story of the record, then parts → as 'save'
--    or 'resign', token.
--
-- See redis_record.py for stories and parts: of each part is counted how often the record and the news have it.
--
-- A leader is fenced by its token: whoever has lost the lease can neither save nor announce. A connection is known by the
-- incarnation that it was introduced with, and is gone when it was not heard of for its ttl. What it wanted is forgotten
-- then; if nobody has had its name when it is heard of again, it is back. 'back' is answered until it tells what it wants.
--
-- Redis counts how long keys live by the clock of its machine, and that may jump. So a lease also ends when somebody saw
-- by a clock of its own that its pulse, a count of how often it was prolonged, stands still. And no jump makes anybody
-- count as gone, or as there for longer than a ttl.

local record, wishes, published, lease, news, asked = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local incarnations, connections, alive, looked = KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local nodes, lossy, expected, led, parts, held = KEYS[11], KEYS[12], KEYS[13], KEYS[14], KEYS[15], KEYS[16]
local gone = KEYS[17]
-- So many names that are gone may come back.
local GONE_MAX = 10000
local verb, name = ARGV[1], ARGV[2]
local time = redis.call('TIME')
local now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

local function lives(who, ttl_ms)
  redis.call('ZADD', alive, string.format('%.0f', now_ms + tonumber(ttl_ms)), who)
end

local function told(who)
  redis.call('XADD', asked, 'MAXLEN', '=', 1, '*', 'by', who)
end

local function newest(stream)
  local entry = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
  return entry and entry[1] or '0-0'
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

local function forget(who)
  redis.call('HDEL', wishes, who)
  redis.call('HDEL', connections, who)
  redis.call('ZREM', alive, who)
end

if verb == 'introduce' then
  local incarnation = next_incarnation(0)
  redis.call('HSET', connections, name, incarnation)
  redis.call('ZREM', gone, name)
  lives(name, ARGV[3])
  return incarnation
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
    forget(name)
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

if verb == 'register' then
  local at = redis.call('HGET', nodes, name)
  if at and at ~= ARGV[3] then
    return at
  end
  redis.call('HSET', nodes, name, ARGV[3])
  redis.call(ARGV[4] == '1' and 'SADD' or 'SREM', lossy, name)
  return 'ok'
end

if verb == 'expect' then
  if redis.call('SADD', expected, unpack(ARGV, 3)) > 0 then
    told(name)
  end
  return 'ok'
end

local token, leader = ARGV[2], redis.call('GET', lease)

if verb == 'look' or verb == 'keep' then
  -- When the lease has run out, its last holder may keep it only if nobody led in between.
  local last, pulse = redis.call('HGET', led, 'token'), redis.call('HGET', led, 'pulse')
  local leads = leader == token or (not leader and (verb == 'look' or last == token))
  if verb == 'look' and not leads then
    leads = pulse and pulse == ARGV[6]
  end
  if leads then
    redis.call('SET', lease, token, 'PX', ARGV[3])
    redis.call('HSET', led, 'token', token)
    redis.call('HINCRBY', led, 'pulse', 1)
  end
  if verb == 'keep' then
    return leads and 1 or 0
  elseif not leads then
    return { 0, pulse or '' }
  end
  -- While nobody looked, because nobody could, nobody could be heard either; a clock that jumped ahead looks the same.
  local missed_ms = now_ms - tonumber(redis.call('GET', looked) or now_ms)
  if missed_ms > tonumber(ARGV[4]) then
    for _, who in ipairs(redis.call('ZRANGE', alive, 0, -1)) do
      redis.call('ZINCRBY', alive, missed_ms, who)
    end
  end
  redis.call('SET', looked, string.format('%.0f', now_ms))
  -- Nobody is to live for longer from now on than who is heard of now: the clock was ahead when it was said so.
  local latest_ms = string.format('%.0f', now_ms + tonumber(ARGV[5]))
  for _, who in ipairs(redis.call('ZRANGEBYSCORE', alive, '(' .. latest_ms, '+inf')) do
    redis.call('ZADD', alive, latest_ms, who)
  end
  for _, who in ipairs(redis.call('ZRANGEBYSCORE', alive, '-inf', now_ms)) do
    redis.call('ZADD', gone, redis.call('HGET', connections, who) or 0, who)
    forget(who)
  end
  redis.call('ZREMRANGEBYRANK', gone, 0, -GONE_MAX - 1)
  return {
    1, redis.call('GET', record) or '', redis.call('HGETALL', wishes), redis.call('SMEMBERS', published),
    newest(news), newest(asked), redis.call('HGETALL', nodes), redis.call('SMEMBERS', lossy),
    redis.call('SCARD', expected), last ~= token and 1 or 0,
  }
end

if leader ~= token then
  return 0
end

local function parts_of(story)
  return string.gmatch(string.match(story, '^[^\n]*'), '%x+')
end

local function let_go(story)
  for digest in parts_of(story) do
    if redis.call('HINCRBY', held, digest, -1) <= 0 then
      redis.call('HDEL', held, digest)
      redis.call('HDEL', parts, digest)
    end
  end
end

-- The parts from an argument on.
local function given_from(first)
  local given = {}
  for place = first, #ARGV, 2 do
    given[ARGV[place]] = ARGV[place + 1]
  end
  return given
end

-- Whether a story has parts that are neither known nor given.
local function lacks(story, given)
  for digest in parts_of(story) do
    if not given[digest] and not redis.call('HGET', held, digest) then
      return true
    end
  end
  return false
end

-- Count and store the parts of a story.
local function hold(story, given)
  for digest in parts_of(story) do
    if redis.call('HINCRBY', held, digest, 1) == 1 then
      redis.call('HSET', parts, digest, given[digest])
    end
  end
end

local function save(story, given)
  hold(story, given)
  local before = redis.call('GET', record)
  redis.call('SET', record, story)
  if before then
    let_go(before)
  end
end

local function announce(story, given)
  local last_epoch, last_version = string.match(newest(news), '^(%d+)-(%d+)$')
  last_epoch, last_version = tonumber(last_epoch), tonumber(last_version)
  local epoch, version = tonumber(ARGV[3]), tonumber(ARGV[4])
  if epoch > last_epoch or (epoch == last_epoch and version > last_version) then
    hold(story, given)
    redis.call('XADD', news, ARGV[3] .. '-' .. ARGV[4], 'record', story)
    for length = redis.call('XLEN', news), tonumber(ARGV[5]) + 1, -1 do
      let_go(redis.call('XRANGE', news, '-', '+', 'COUNT', 1)[1][2][2])
      redis.call('XTRIM', news, 'MAXLEN', '=', length - 1)
    end
  end
end

if verb == 'save' then
  local given = given_from(4)
  if lacks(ARGV[3], given) then
    return 'parts'
  end
  save(ARGV[3], given)
elseif verb == 'announce' then
  local given = given_from(7)
  if lacks(ARGV[6], given) then
    return 'parts'
  end
  announce(ARGV[6], given)
elseif verb == 'settle' then
  local given = given_from(8)
  if lacks(ARGV[6], given) or lacks(ARGV[7], given) then
    return 'parts'
  end
  announce(ARGV[6], given)
  save(ARGV[7], given)
else
  redis.call('DEL', lease)
end
return 1
