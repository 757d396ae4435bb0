-- The record of what is so, and the leader: what managers do.
--
-- KEYS: record; the others are beside it: see controlkeys.py.
-- ARGV: 'register', node, url, '1' if it may lose something, else '0' → 'ok', or the url that it is registered at
--    or 'look', token, lease in ms, the longest time between two looks in ms, unless something is wrong, ttl in ms, and
--       the pulse, as told before, that stood still for longer than a lease, else ''
--                                                 → 0 and the pulse of the lease, or 1 and what there is
--    or 'found', token, epoch, version, how many to keep, story of the news → 1; from now on, joins are granted in place
--    or 'plan', token                             → 1; from now on, no join is granted without a plan
--    or 'keep', token, lease in ms                → whether the lease is still held
--    or 'save', token, story of the record, then parts, digest and text each
--                                                 → 'parts', and nothing done, if a part is neither here nor given
--    or 'announce', token, epoch, version, how many to keep, story of the news, then parts → as 'save'
--    or 'settle', token, epoch, version, how many to keep, story of the news, story of the record, then parts → as 'save'
--    or 'past', token, id of a plan (epoch-version), how long to keep it in ms, what it ends (see past.py), regions
--    or 'resign', token.
--
-- See record.py for stories and parts: of each part is counted how often the record and the news have it.
--
-- A leader is fenced by its token: whoever has lost the lease can neither save nor announce.
--
-- Redis counts how long keys live by the clock of its machine, and that may jump. So a lease also ends when somebody saw
-- by a clock of its own that its pulse, a count of how often it was prolonged, stands still. And no jump makes anybody
-- count as gone, or as there for longer than a ttl.

local record, prefix = KEYS[1], string.match(KEYS[1], '^(.*:)')
local wishes, published, lease, news = prefix .. 'wishes', prefix .. 'published', prefix .. 'leader', prefix .. 'news'
local asked, connections, alive, looked = prefix .. 'asked', prefix .. 'connections', prefix .. 'alive', prefix .. 'looked'
local nodes, lossy, expected, led = prefix .. 'nodes', prefix .. 'lossy', prefix .. 'expected', prefix .. 'led'
local parts, held, gone, doubted = prefix .. 'parts', prefix .. 'held', prefix .. 'gone', prefix .. 'doubted'
local sole, all_said, all_rows = prefix .. 'sole', prefix .. 'said', prefix .. 'rows:'
-- So many names that are gone may come back.
local GONE_MAX = 10000
-- So many plans of the past are forgotten in one call: more than are added.
local FORGET_MAX = 100
local verb = ARGV[1]
local time = redis.call('TIME')
local now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

local function newest(stream)
  local entry = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
  return entry and entry[1] or '0-0'
end

local function forget(who)
  redis.call('HDEL', wishes, who)
  redis.call('HDEL', connections, who)
  redis.call('ZREM', alive, who)
  redis.call('DEL', all_rows .. who)
  redis.call('HDEL', all_said, who)
end

if verb == 'register' then
  local name = ARGV[2]
  local at = redis.call('HGET', nodes, name)
  if at and at ~= ARGV[3] then
    return at
  end
  redis.call('HSET', nodes, name, ARGV[3])
  redis.call(ARGV[4] == '1' and 'SADD' or 'SREM', lossy, name)
  redis.call('XADD', asked, 'MAXLEN', '=', 1, '*', 'by', name)
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
  -- Anybody who reads or publishes may write there: only what concerns a node is read.
  local doubts = {}
  for _, node in ipairs({ 'control', unpack(redis.call('HKEYS', nodes)) }) do
    local run = redis.call('HGET', doubted, node)
    if run then
      doubts[#doubts + 1], doubts[#doubts + 2] = node, run
    end
  end
  return {
    1, redis.call('GET', record) or '', redis.call('HGETALL', wishes), redis.call('SMEMBERS', published),
    newest(news), newest(asked), redis.call('HGETALL', nodes), redis.call('SMEMBERS', lossy),
    redis.call('SCARD', expected), last ~= token and 1 or 0, doubts, redis.call('EXISTS', sole),
    redis.call('HLEN', connections),
  }
end

if leader ~= token then
  return 0
end

if verb == 'plan' then
  redis.call('DEL', sole)
  return 1
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

-- Whether an id of a stream, epoch-version, is larger than another.
local function follows(id, last)
  local last_epoch, last_version = string.match(last, '^(%d+)-(%d+)$')
  local epoch, version = string.match(id, '^(%d+)-(%d+)$')
  last_epoch, last_version, epoch, version = tonumber(last_epoch), tonumber(last_version), tonumber(epoch), tonumber(version)
  return epoch > last_epoch or (epoch == last_epoch and version > last_version)
end

local function announce(story, given)
  if follows(ARGV[3] .. '-' .. ARGV[4], newest(news)) then
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
elseif verb == 'found' then
  redis.call('SET', sole, ARGV[3])
  redis.call('DEL', doubted) -- what was lost was of a network before
  announce(ARGV[6], {})
elseif verb == 'past' then
  local past, id, kept_ms = prefix .. 'past', ARGV[3], tonumber(ARGV[4])
  if follows(id, newest(past)) then
    redis.call('XADD', past, id, 'at', string.format('%.0f', now_ms), 'left', ARGV[5])
    for _ = 1, FORGET_MAX do
      local oldest = redis.call('XRANGE', past, '-', '+', 'COUNT', 1)[1]
      if tonumber(oldest[2][2]) > now_ms - kept_ms then
        break
      end
      redis.call('XTRIM', past, 'MAXLEN', '=', redis.call('XLEN', past) - 1)
    end
    redis.call('PEXPIRE', past, kept_ms)
  end
  local oldest = redis.call('XRANGE', past, '-', '+', 'COUNT', 1)[1]
  for place = 6, #ARGV do
    local one = past .. ':' .. ARGV[place]
    if follows(id, newest(one)) then
      redis.call('XADD', one, id, '', '')
      redis.call('XTRIM', one, 'MINID', '=', oldest[1])
      redis.call('PEXPIRE', one, kept_ms)
    end
  end
else
  redis.call('DEL', lease)
end
return 1
