-- What connections tell managers: who is there, what each wants, and which overlaps are expected.
--
-- KEYS: connections; the others are beside it: published, asked, changes, incarnations, alive, expected, gone, sole, said,
--    superseded, regions, boxes, what each connection wants, rows:NAME, and box:BOX.
-- ARGV: 'introduce', name, ttl in ms, box        → the incarnation of a new connection, and when the network began, in ms
--    or 'renew', name, connection, incarnation   → a new one for its events, after that one, or 'superseded'
--    or 'incarnations', ''                       → the last that was given, and the names of all connections
--    or 'beat', ttl in ms, box, then for each: name, connection, said, what it does: events delivered, held and queued
--                                                 → 'ok', 'superseded' or 'back', for each
--    or 'leave', name, connection
--    or 'join', ttl in ms, box, then for each: name, connection, said, part, '1' if it is the last part of what was said then,
--       '1' if it is all that is wanted, floor, how many regions are wanted from now on, how many are not any more; then
--       these: region and since when for each that is wanted, and the others
--                                                 → 'ok', 'superseded', 'plan' where not one node has all, or 'back', for
--                                                    each
--    or 'place', name, connection, ttl in ms, box, regions that events are to be published to
--    or 'expect', who, overlaps, two regions and a newline between them each
--
-- What leaders do is in leading.lua: Redis tells apart what users may do by keys and commands, so what a game server
-- runs takes no key of a leader.
--
-- A connection is known by the incarnation that it was introduced with, and is gone when it was not heard of for its ttl.
-- What it wanted is forgotten then; if nobody has had its name when it is heard of again, it is back. 'back' is answered
-- until it tells all that it wants: what has changed since is not taken without the rest.
--
-- A box is what wakes the process of a connection when there are news for it: leaders write there.
--
-- Where leaders make plans, each change is noted in `changes`, whose entries are numbered without gaps, for the leader:
--    'join', name, 'said', connection, said, floor and whether it is all that is wanted, then region, since (0: no more)
--    or 'gone', name
--    or 'place', how many, then region, '' each

local connections, prefix = KEYS[1], string.match(KEYS[1], '^(.*:)')
local published, asked, changes = prefix .. 'published', prefix .. 'asked', prefix .. 'changes'
local incarnations, alive, expected = prefix .. 'incarnations', prefix .. 'alive', prefix .. 'expected'
local gone, sole, all_said, superseded = prefix .. 'gone', prefix .. 'sole', prefix .. 'said', prefix .. 'superseded'
local all_rows, boxes, box, regions = prefix .. 'rows:', prefix .. 'boxes', prefix .. 'box:', prefix .. 'regions'
local doing = prefix .. 'doing'
-- Three numbers: a longer text is none of ours.
local DOING_MAX = 64
-- How long a box stays that is read no more.
local BOX_MS = 60000
-- Who has not read these has a heartbeat before so many have come.
local SUPERSEDED_MAX = 64
local verb, name = ARGV[1], ARGV[2]
-- No name has a control character. When the hash was begun: it tells a network from one that was here before.
local BORN = '\n'
-- How many changes were noted.
local NOTED = '\n\n'
-- A leader that is further behind reads what all want.
local CHANGES_MAX = 20000
local time = redis.call('TIME')
local now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

local function lives(who, ttl_ms)
  redis.call('ZADD', alive, string.format('%.0f', now_ms + tonumber(ttl_ms)), who)
end

-- What wakes somebody is no reason to fail: the leader looks by itself, too, and removes what hinders this.
local function told(who)
  redis.pcall('XADD', asked, 'MAXLEN', '=', 1, '*', 'by', who)
end

local function note(...)
  local number = redis.call('HINCRBY', incarnations, NOTED, 1)
  local noted = redis.pcall('XADD', changes, 'MAXLEN', '~', CHANGES_MAX, string.format('%.0f-0', number), ...)
  if type(noted) == 'table' and noted.err then
    told('') -- the leader misses this number, and reads what all want
  end
end

-- The next one of each is left for others, who may have to say that its connection has left. Of all names together, so that none has to be kept. What a name had of its own, as they once had, is below it.
local function next_incarnation(after)
  local drawn, own = redis.call('HINCRBY', incarnations, '', 2), redis.call('HGET', incarnations, name)
  if own then
    redis.call('HDEL', incarnations, name)
  end
  local known = math.max(after, tonumber(own or '') or 0)
  return drawn > known and drawn or redis.call('HINCRBY', incarnations, '', known + 2 - drawn)
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

local function is_here(who, connection, ttl_ms, waits_at)
  if redis.call('HSET', connections, who, connection) == 1 then
    redis.call('HSET', boxes, who, waits_at)
    redis.call('ZREM', gone, who)
    lives(who, ttl_ms)
  end
end

if verb == 'introduce' then
  local incarnation = next_incarnation(0)
  if redis.call('HSET', connections, name, incarnation) == 0 then
    redis.pcall('XADD', superseded, 'MAXLEN', '=', SUPERSEDED_MAX, '*', name, incarnation)
  end
  redis.call('ZREM', gone, name)
  redis.pcall('HDEL', doing, name)
  redis.call('HSET', boxes, name, ARGV[4])
  if redis.call('EXISTS', sole) == 1 then
    forget_rows(name)
  end
  lives(name, ARGV[3])
  local born = redis.call('HGET', incarnations, BORN)
  if not born then
    born = string.format('%.0f', now_ms)
    redis.call('HSET', incarnations, BORN, born)
    told(name) -- the leader begins the network
  end
  return { incarnation, born }
end

-- Whether a part of what a connection said is no older than what is known of its name.
local function is_newer(who, connection, said, part)
  local before, said_before, part_before = string.match(redis.call('HGET', all_said, who) or '', '^(%d+) (%d+) (%d+) ')
  if before ~= connection then
    return true, true
  end
  said, said_before = tonumber(said), tonumber(said_before)
  return said > said_before or (said == said_before and tonumber(part) >= tonumber(part_before)), false
end

if verb == 'join' then
  local answers, place, is_sole = {}, 4, redis.call('EXISTS', sole) == 1
  while ARGV[place] do
    local who, connection, said, part = ARGV[place], ARGV[place + 1], ARGV[place + 2], ARGV[place + 3]
    local is_last, is_all, floor = ARGV[place + 4], ARGV[place + 5], ARGV[place + 6]
    local first = place + 9
    local last = first + 2 * tonumber(ARGV[place + 7]) - 1
    local last_left = last + tonumber(ARGV[place + 8])
    local speaking = speaks(who, connection)
    answers[#answers + 1] = not speaking and 'superseded' or is_sole and 'ok' or 'plan'
    -- An earlier request may have been held up on its way.
    local newer, begins = is_newer(who, connection, said, part)
    if speaking then
      is_here(who, connection, name, ARGV[3])
    end
    if speaking and newer and begins and is_all ~= '1' and said ~= '1' then -- what is said first is all
      answers[#answers] = 'back'
    elseif speaking and newer then
      if begins or is_all == '1' then
        forget_rows(who)
      end
      local rows = all_rows .. who
      if last >= first then
        redis.call('HSET', rows, unpack(ARGV, first, last))
      end
      if last_left > last then
        redis.call('HDEL', rows, unpack(ARGV, last + 1, last_left))
      end
      redis.call('HSET', all_said, who, table.concat({ connection, said, part, is_last, floor }, ' '))
      if not is_sole then
        -- What is not told to the end is not heard yet.
        local heard = is_last == '1' and said or string.format('%.0f', tonumber(said) - 1)
        local whole = (begins or is_all == '1') and '1' or '0'
        local noted = { 'join', who, 'said', table.concat({ connection, heard, floor, whole }, ' ') }
        for at = first, last do
          noted[#noted + 1] = ARGV[at]
        end
        for at = last + 1, last_left do
          noted[#noted + 1], noted[#noted + 2] = ARGV[at], '0'
        end
        note(unpack(noted))
      end
    end
    place = last_left + 1
  end
  return answers
end

if verb == 'beat' then
  local answers = {}
  for place = 4, #ARGV, 4 do
    local who, connection, said, does = ARGV[place], ARGV[place + 1], ARGV[place + 2], ARGV[place + 3]
    if not speaks(who, connection) then
      answers[#answers + 1] = 'superseded'
    else
      is_here(who, connection, name, ARGV[3])
      lives(who, name)
      if does ~= '' and #does <= DOING_MAX then -- only figures: what hinders this is no reason to count as gone
        redis.pcall('HSET', doing, who, string.format('%s %.0f', does, now_ms))
      end
      local known, known_said = string.match(redis.call('HGET', all_said, who) or '', '^(%d+) (%d+) ')
      local is_known = known == connection and tonumber(known_said) >= tonumber(said)
      answers[#answers + 1] = is_known and 'ok' or 'back'
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
    redis.call('HDEL', connections, name)
    redis.call('HDEL', boxes, name)
    redis.pcall('HDEL', doing, name)
    redis.call('ZREM', alive, name)
    redis.call('ZREM', gone, name)
    forget_rows(name)
    if redis.call('EXISTS', sole) == 0 then
      note('gone', name)
    end
    return 'ok'
  end
end

if verb == 'incarnations' then
  return { tonumber(redis.call('HGET', incarnations, '') or 0), redis.call('HKEYS', connections) }
end

if verb == 'place' then
  if not speaks(name, ARGV[3]) then
    return 'superseded'
  end
  is_here(name, ARGV[3], ARGV[4], ARGV[5])
  local noted, wanted = { 'place', 0 }, {}
  for place = 6, #ARGV do
    if redis.call('HEXISTS', regions, ARGV[place]) == 0 then
      wanted[#wanted + 1] = ARGV[place]
      noted[#noted + 1], noted[#noted + 2] = ARGV[place], ''
    end
  end
  if #wanted < #ARGV - 5 then
    -- Others have them: that was no news for this process.
    redis.pcall('XADD', box .. ARGV[5], 'MAXLEN', '=', 1, '*', '', '')
    redis.call('PEXPIRE', box .. ARGV[5], BOX_MS)
  end
  if #wanted > 0 and redis.call('SADD', published, unpack(wanted)) > 0 then
    noted[2] = #wanted
    note(unpack(noted))
  end
  return 'ok'
end

-- 'expect'
if redis.call('SADD', expected, unpack(ARGV, 3)) > 0 then
  told(name)
end
return 'ok'
