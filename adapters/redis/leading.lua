-- The state of the network, and the leader: what managers do.
--
-- KEYS: state; the others are beside it: see controlkeys.py.
-- ARGV: 'register', node, url, '1' if it may lose something, else '0' → 'ok', or the url that it is registered at; 'retired'
--    or 'retire', node                            → 1 if it was registered, -1 if it is the only one
--    or 'propose', id, plan                       → 'ok'; 'none' without a leader, 'busy' while another has no answer
--    or 'look', token, lease in ms, the longest time between two looks in ms, unless something is wrong, ttl in ms, the
--       pulse, as told before, that stood still for longer than a lease, else '', and how many changes are known
--                                                 → 0 and the pulse of the lease, or 1 and what there is
--    or 'keep', token, lease in ms                → whether the lease is still held
--    or 'write', token, how often the state was written, for how many it is news ('-1': for all) and their names, then
--       commands, how many arguments and these each
--                                                 → 1 if they were carried out, all at once
--    or 'answer', token, id of a proposal, answer
--    or 'past', token, id of a plan (epoch-version), how long to keep it in ms, what it ends (see past.py), regions
--    or 'mend', '1' if the keys of each name are looked at, too, then keys and types
--                                                 → of what cannot be used, and is removed: key, and what it was
--    or 'resign', token.
--
-- A term ends when another candidate takes the lease: who has the answers of two looks, sees that none has between them.
--
-- A leader is fenced by its token: without the lease it can write nothing, nor without knowing what was
-- written last.
--
-- Redis counts how long keys live by the clock of its machine, and that may jump. So a lease also ends when somebody saw
-- by a clock of its own that its pulse, a count of how often it was prolonged, stands still. And no jump makes anybody
-- count as gone, or as there for longer than a ttl.

local state, prefix = KEYS[1], string.match(KEYS[1], '^(.*:)')
local lease, asked, changes, looked = prefix .. 'leader', prefix .. 'asked', prefix .. 'changes', prefix .. 'looked'
local connections, alive, incarnations = prefix .. 'connections', prefix .. 'alive', prefix .. 'incarnations'
local nodes, lossy, expected, led = prefix .. 'nodes', prefix .. 'lossy', prefix .. 'expected', prefix .. 'led'
local gone, doubted, sole = prefix .. 'gone', prefix .. 'doubted', prefix .. 'sole'
local proposal = prefix .. 'proposal'
local all_said, all_rows = prefix .. 'said', prefix .. 'rows:'
local boxes, box, woken, published = prefix .. 'boxes', prefix .. 'box:', prefix .. 'woken', prefix .. 'published'
-- As in control.lua.
local NOTED, CHANGES_MAX, BOX_MS = '\n\n', 20000, 60000
-- So many changes are read in one look.
local CHANGES_A_LOOK = 2000
-- So many names that are gone may come back.
local GONE_MAX = 10000
-- So many plans of the past are forgotten in one call: more than are added.
local FORGET_MAX = 100
local TYPES = { SADD = 'set', SREM = 'set', HSET = 'hash', HDEL = 'hash', XADD = 'stream' }
-- Numbers with more digits are not exact in Lua.
local DIGITS_MAX = 15
-- So long a proposal waits for an answer, and its answer for who proposed.
local PROPOSAL_MS = 600000
local verb = ARGV[1]
local time = redis.call('TIME')
local now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

local function newest(stream)
  local entry = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
  return entry and entry[1] or '0-0'
end

-- A process may have written there what it wants. So what hinders that is removed.
local function wake(stream)
  local added = redis.pcall('XADD', stream, 'MAXLEN', '=', 1, '*', '', '')
  if type(added) == 'table' and added.err then
    redis.call('DEL', stream)
    redis.call('XADD', stream, 'MAXLEN', '=', 1, '*', '', '')
  end
end

local function forget(who)
  local number = redis.call('HINCRBY', incarnations, NOTED, 1)
  redis.pcall('XADD', changes, 'MAXLEN', '~', CHANGES_MAX, string.format('%.0f-0', number), 'gone', who)
  redis.call('HDEL', connections, who)
  redis.call('HDEL', boxes, who)
  redis.pcall('HDEL', prefix .. 'doing', who)
  redis.call('ZREM', alive, who)
  redis.call('DEL', all_rows .. who)
  redis.call('HDEL', all_said, who)
end

if verb == 'retire' then
  if redis.call('HEXISTS', nodes, ARGV[2]) == 1 and redis.call('HLEN', nodes) == 1 then
    return -1
  end
  local was = redis.call('HDEL', nodes, ARGV[2])
  if was == 1 then
    redis.call('SADD', prefix .. 'retired', ARGV[2])
    redis.call('XADD', asked, 'MAXLEN', '=', 1, '*', 'by', ARGV[2])
  end
  return was
end

if verb == 'register' then
  local name = ARGV[2]
  if redis.call('SISMEMBER', prefix .. 'retired', name) == 1 then
    return 'retired'
  end
  local at = redis.call('HGET', nodes, name)
  if at and at ~= ARGV[3] then
    return at
  end
  redis.call('HSET', nodes, name, ARGV[3])
  redis.call(ARGV[4] == '1' and 'SADD' or 'SREM', lossy, name)
  redis.call('XADD', asked, 'MAXLEN', '=', 1, '*', 'by', name)
  return 'ok'
end

if verb == 'propose' then
  if redis.call('EXISTS', lease) == 0 then
    return 'none'
  end
  local before = redis.pcall('HMGET', proposal, 'plan', 'answer')
  if not before.err and before[1] and not before[2] then
    return 'busy'
  end
  redis.call('DEL', proposal)
  redis.call('HSET', proposal, 'id', ARGV[2], 'plan', ARGV[3])
  redis.call('PEXPIRE', proposal, PROPOSAL_MS)
  redis.call('XADD', asked, 'MAXLEN', '=', 1, '*', 'by', '')
  return 'ok'
end

if verb == 'mend' then
  local removed = {}
  local now = string.format('%.0f', now_ms)
  local function remove(key, was)
    redis.call('DEL', key)
    if key == incarnations then
      redis.call('HSET', incarnations, '', now) -- larger than all before
    end
    removed[#removed + 1], removed[#removed + 2] = key, was
  end
  local function mend(key, wanted)
    local kind = redis.call('TYPE', key).ok
    if kind ~= 'none' and kind ~= wanted then
      remove(key, 'a ' .. kind .. ' and not a ' .. wanted)
    end
  end
  -- A number from which no count can go on. As it is then, it is larger than any that was counted.
  local function mend_number(hash, field, instead)
    local text = redis.call('HGET', hash, field)
    if text and not (string.match(text, '^%d+$') and #text <= DIGITS_MAX) then
      redis.call('HSET', hash, field, instead)
      removed[#removed + 1], removed[#removed + 2] = hash, 'no number: ' .. string.sub(text, 1, 40)
    end
  end
  for place = 3, #ARGV, 2 do
    mend(ARGV[place], ARGV[place + 1])
  end
  if ARGV[2] == '1' then
    for _, who in ipairs(redis.call('HKEYS', all_said)) do
      mend(all_rows .. who, 'hash')
    end
    local heard = redis.pcall('HKEYS', prefix .. 'heard')
    for _, who in ipairs(heard.err and {} or heard) do
      mend(prefix .. 'counted:' .. who, 'set')
    end
  end
  mend_number(incarnations, '', now)
  mend_number(incarnations, NOTED, now)
  mend_number(led, 'pulse', now)
  mend_number(led, 'term', now)
  if redis.call('TYPE', state).ok == 'hash' then
    mend_number(state, 'number', now)
  end
  -- After these ids, no more can be added.
  for _, stream in ipairs({ asked, woken, prefix .. 'superseded', changes }) do
    if #string.match(newest(stream), '^%d+') > DIGITS_MAX then
      remove(stream, 'a stream with a last id of ' .. newest(stream))
    end
  end
  local noted = tonumber(redis.call('HGET', incarnations, NOTED) or 0)
  if tonumber(string.match(newest(changes), '^%d+')) > noted then
    remove(changes, 'a stream with a last id of ' .. newest(changes))
  end
  return removed
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
    if last ~= token then
      redis.call('HINCRBY', led, 'term', 1)
    end
    redis.call('HSET', led, 'token', token)
    redis.call('HINCRBY', led, 'pulse', 1)
  end
  if verb == 'keep' then
    return leads and 1 or 0
  elseif not leads then
    return { 0, pulse or '' }
  end
  -- While nobody looked, because nobody could, nobody could be heard either; a clock that jumped ahead looks the same.
  local missed_ms = now_ms - (tonumber(redis.call('GET', looked) or '') or now_ms)
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
    redis.call('ZADD', gone, tonumber(redis.call('HGET', connections, who) or '') or 0, who)
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
  local noted = redis.call('HGET', incarnations, NOTED) or '0'
  local news = {}
  if tonumber(noted) > tonumber(ARGV[7]) then
    news = redis.call('XRANGE', changes, string.format('%.0f', tonumber(ARGV[7]) + 1), '+', 'COUNT', CHANGES_A_LOOK)
  end
  -- What another program has put there does not matter.
  local proposed = redis.pcall('HMGET', proposal, 'id', 'answer')
  return {
    1, redis.call('HGET', state, 'number') or '0', noted, news, newest(asked), redis.call('HGETALL', nodes),
    redis.call('SMEMBERS', lossy), redis.call('SCARD', expected), redis.call('HGET', led, 'term'), doubts,
    redis.call('EXISTS', sole), redis.call('HLEN', connections), redis.call('EXISTS', prefix .. 'record'),
    not proposed.err and not proposed[2] and proposed[1] or '',
  }
end

if leader ~= token then
  return 0
end

-- Whether an id of a stream, epoch-version, is larger than another.
local function follows(id, last)
  local last_epoch, last_version = string.match(last, '^(%d+)-(%d+)$')
  local epoch, version = string.match(id, '^(%d+)-(%d+)$')
  last_epoch, last_version, epoch, version = tonumber(last_epoch), tonumber(last_version), tonumber(epoch), tonumber(version)
  return epoch > last_epoch or (epoch == last_epoch and version > last_version)
end

if verb == 'write' then
  if (redis.call('HGET', state, 'number') or '0') ~= ARGV[3] then
    return 0
  end
  local concerned = tonumber(ARGV[4])
  local place = 5 + math.max(0, concerned)
  -- All or nothing: what could not be carried out half way, is not begun.
  local checked = {}
  while ARGV[place] do
    local key, wanted = ARGV[place + 2], TYPES[ARGV[place + 1]]
    if wanted and not checked[key] then
      local kind = redis.call('TYPE', key).ok
      if kind ~= 'none' and kind ~= wanted then
        return redis.error_reply('WRONGTYPE ' .. key .. ' is a ' .. kind .. ' and not a ' .. wanted)
      end
      checked[key] = true
    end
    place = place + tonumber(ARGV[place]) + 1
  end
  place = 5 + math.max(0, concerned)
  while ARGV[place] do
    local last = place + tonumber(ARGV[place])
    local done = redis.call(unpack(ARGV, place + 1, last))
    if ARGV[place + 1] == 'SREM' and ARGV[place + 2] == published and done > 0 then
      concerned = -1 -- somebody waits to publish there
    end
    place = last + 1
  end
  if concerned < 0 then
    wake(woken)
  end
  local seen = {}
  for at = 5, 4 + concerned do
    local waits_at = redis.call('HGET', boxes, ARGV[at])
    if waits_at and not seen[waits_at] then
      seen[waits_at] = true
      wake(box .. waits_at)
      redis.call('PEXPIRE', box .. waits_at, BOX_MS)
    end
  end
  redis.call('HSET', state, 'number', string.format('%.0f', tonumber(ARGV[3]) + 1))
elseif verb == 'answer' then
  if redis.call('HGET', proposal, 'id') == ARGV[3] then
    redis.call('HSET', proposal, 'answer', ARGV[4])
    redis.call('HDEL', proposal, 'plan')
  end
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
