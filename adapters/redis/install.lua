-- Change which steps a node has: the twin of install, prepare, open, seal, forget, forget_publishers, begin_any and admit in
-- sequencing/node.py.
--
-- KEYS: node, steps, counters, publishers; one more where nothing is to be pushed to readers.
-- ARGV: 'install' or 'prepare', epoch, version, retention, the network's first epoch, then region, step's epoch, step for
--       each step
--    or 'open', then region, epoch, how many publishers, how many keys ('-1': none was ever named), the epoch that began
--       with a loss of the heads of keys, or '0', then publisher, accepted for each and key, its head, a newline and its
--       value for each; for each region
--    or 'seal', then region, epoch, number of the TICK for each stream
--    or 'forget', epoch and version of the plan for which, how many dead ends of links, those, how many regions whose
--       keys are elsewhere, those and from which epoch on for each, then epoch, region for each step
--    or 'forget publishers', incarnation, then region and publisher, a newline between, for each
--    or 'any', epoch, version, retention, the network's first epoch: begin whatever region of that epoch is published to
--    or 'no more': begin only those of steps
--    or 'admit', run.

local node_key, steps_key, counters_key, publishers_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

local prefix = string.sub(node_key, 1, -5)
local TICK_META = '2 1 0 0 '
-- How long the stream of an epoch that has ended stays, for who is far behind.
local ENDED_KEPT_S = 3600
-- Lua's unpack is limited by its C stack (8,000 slots).
local CHUNK = 4000

local function forget(field)
  local raw = redis.call('HGET', steps_key, field)
  redis.call('HDEL', steps_key, field)
  redis.call('HDEL', counters_key, 'r ' .. field)
  local step = raw and cjson.decode(raw) or {}
  for at = 3, #step, CHUNK do
    redis.call('HDEL', counters_key, unpack(step, at, math.min(at + CHUNK - 1, #step)))
  end
end

local function begin_anew(epoch)
  local steps = redis.call('HGETALL', steps_key)
  for i = 1, #steps, 2 do
    local field, step = steps[i], cjson.decode(steps[i + 1])
    if tonumber(string.match(field, '^%d+')) < epoch - 1 then
      forget(field)
    elseif step[1] == 'I' then
      step[1] = 'C'
      redis.call('HSET', steps_key, field, cjson.encode(step))
    end
  end
end

local function later(accepted, than)
  local incarnation, last = string.match(accepted, '^(%d+) (%d+)')
  local than_incarnation, than_last = string.match(than, '^(%d+) (%d+)')
  incarnation, than_incarnation = tonumber(incarnation), tonumber(than_incarnation)
  return incarnation > than_incarnation
    or (incarnation == than_incarnation and tonumber(last) > tonumber(than_last))
end

-- What is known here from an earlier time may have been forgotten where the region was meanwhile.
local function forget_all_but(handed, region, upto)
  local fields = redis.call('HGETALL', publishers_key)
  for i = 1, #fields, 2 do
    local is_here = string.sub(fields[i], 1, #region + 1) == region .. '\n'
    if is_here and not handed[fields[i]] and tonumber(string.match(fields[i + 1], '^%d+')) <= upto then
      redis.call('HDEL', publishers_key, fields[i])
    end
  end
end

local function take_heads(region, epoch, keys, lost, from)
  local heads, keyed = prefix .. 'heads:' .. region, prefix .. 'keyed'
  local values, held = prefix .. 'values:' .. region, prefix .. 'heads:\n' .. region
  redis.call('DEL', heads, values, held, prefix .. 'pending:' .. region) -- of an earlier time
  if keys < 0 then
    redis.call('HDEL', keyed, region)
    return
  end
  redis.call('HSET', keyed, region, lost .. ' ' .. epoch)
  for at = from, from + 2 * keys - 1, 2 do
    local newline = string.find(ARGV[at + 1], '\n', 1, true)
    redis.call('HSET', heads, ARGV[at], string.sub(ARGV[at + 1], 1, newline - 1))
    local value = string.sub(ARGV[at + 1], newline + 1)
    redis.call('HSET', values, ARGV[at], value)
    local client = string.match(value, '^[^ \n]* [^ \n]* ~([^~\n]*)')
    if client and string.sub(ARGV[at], 1, 1) ~= '@' and string.sub(ARGV[at], 1, 6) ~= 'owner:' then
      redis.call('HSET', held, 'k' .. ARGV[at], #value .. ' ' .. client)
      for _, field in ipairs({ 'a', 's' .. client }) do
        local count, bytes = string.match(redis.call('HGET', held, field) or '0 0', '^(%d+) (%d+)$')
        redis.call('HSET', held, field, string.format('%.0f %.0f', count + 1, bytes + #value))
      end
    end
  end
end

local function open(region, epoch, from, to, keys, lost)
  local field = epoch .. ' ' .. region
  local raw = redis.call('HGET', steps_key, field)
  local step = raw and cjson.decode(raw) or { '' }
  if string.sub(step[1], 1, 1) ~= 'W' then
    return
  end
  step[1] = 'I'
  redis.call('HSET', steps_key, field, cjson.encode(step))
  take_heads(region, epoch, keys, lost, to + 1)
  local handed = {}
  for at = from, to, 2 do
    handed[region .. '\n' .. ARGV[at]] = ARGV[at + 1]
  end
  local forgotten = handed[region .. '\n']
  if forgotten then
    forget_all_but(handed, region, tonumber(string.match(forgotten, '^%d+')))
  end
  for at = from, to, 2 do
    local publisher = region .. '\n' .. ARGV[at]
    local before = redis.call('HGET', publishers_key, publisher)
    if not before or later(ARGV[at + 1], before) then
      redis.call('HSET', publishers_key, publisher, ARGV[at + 1])
    end
  end
end

-- Drops the fields of a hash in whose values a pattern finds a link's end.
local function forget_ending(key, pattern, link_end)
  local rows = redis.call('HGETALL', key)
  for i = 1, #rows, 2 do
    if string.match(rows[i + 1], pattern) == link_end then
      redis.call('HDEL', key, rows[i])
    end
  end
end

local function forget_link(link_end)
  forget_ending(prefix .. 'verdicts', '^[^\n]*', link_end)
  forget_ending(prefix .. 'undecided', '^[^\n]*\n([^\n]*)', link_end)
  redis.call('DEL', prefix .. 'link:' .. link_end)
  redis.call('HDEL', counters_key, 'o ' .. link_end, 'i ' .. link_end)
end

-- Keeps what readers of its streams may still want, for a while, and nothing else.
local function forget_all()
  for _, field in ipairs(redis.call('HKEYS', steps_key)) do
    redis.call('EXPIRE', prefix .. 'egress:' .. string.gsub(field, ' ', ':', 1), ENDED_KEPT_S)
  end
  for _, field in ipairs(redis.call('HKEYS', counters_key)) do
    local link_end = string.match(field, '^o (.*)$')
    if link_end then
      redis.call('DEL', prefix .. 'link:' .. link_end)
    end
  end
  for _, region in ipairs(redis.call('HKEYS', prefix .. 'keyed')) do
    redis.call('DEL', prefix .. 'heads:' .. region, prefix .. 'values:' .. region, prefix .. 'heads:\n' .. region)
  end
  local undecided = redis.call('HGETALL', prefix .. 'undecided')
  for i = 2, #undecided, 2 do
    local at = 0
    for line in string.gmatch(undecided[i] .. '\n', '(.-)\n') do
      at = at + 1
      if at > 3 then
        redis.call('DEL', prefix .. 'pending:' .. line)
      end
    end
  end
  redis.call('DEL', node_key, steps_key, counters_key, publishers_key, prefix .. 'keyed', prefix .. 'outcomes',
    prefix .. 'undecided', prefix .. 'verdicts')
end

local function seal(region, epoch, tick)
  local field = epoch .. ' ' .. region
  local raw = redis.call('HGET', steps_key, field)
  if raw then
    local step = cjson.decode(raw)
    step[1] = 'S'
    redis.call('HSET', steps_key, field, cjson.encode(step))
  end
  local stream = prefix .. 'egress:' .. epoch .. ':' .. region
  local newest = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
  if newest then
    if newest[2][2] == TICK_META then
      return
    end
    local last = tonumber(string.match(newest[1], '%d+$'))
    if last >= tonumber(tick) then
      tick = string.format('%.0f', last + 1)
    end
  end
  redis.call('XADD', stream, epoch .. '-' .. tick, 'm', TICK_META, 's', '', 'b', '')
  if #KEYS == 4 then
    redis.call('PUBLISH', stream, tick)
  end
end

local function incarnation_of(key, field)
  return tonumber(string.match(redis.call('HGET', key, field) or '', '^%d+'))
end

if ARGV[1] == 'forget publishers' then
  local upto = tonumber(ARGV[2])
  for at = 3, #ARGV do
    local region, name = string.match(ARGV[at], '^(.*\n)(.*)$')
    local is_known = false
    for _, key in ipairs({ publishers_key, prefix .. 'outcomes' }) do
      local incarnation = incarnation_of(key, ARGV[at])
      if name ~= '' and incarnation and incarnation <= upto then
        redis.call('HDEL', key, ARGV[at])
        is_known = true
      end
    end
    if is_known and (incarnation_of(publishers_key, region) or -1) < upto then
      redis.call('HSET', publishers_key, region, ARGV[2] .. ' 0 0 0')
    end
  end
  return 1
end

if ARGV[1] == 'forget' then
  local epoch, version = tonumber(ARGV[2]), tonumber(ARGV[3])
  local node = redis.call('HMGET', node_key, 'epoch', 'version')
  local node_epoch, node_version = tonumber(node[1] or '0'), tonumber(node[2] or '0')
  if node_epoch > 0 and (epoch > node_epoch or (epoch == node_epoch and version > node_version)) then
    redis.call('HSET', node_key, 'epoch', ARGV[2], 'version', ARGV[3])
  end
  local ends = tonumber(ARGV[4])
  for at = 5, ends + 4 do
    forget_link(ARGV[at])
  end
  local headless = tonumber(ARGV[ends + 5])
  for at = ends + 6, ends + 2 * headless + 5, 2 do
    local began = string.match(redis.call('HGET', prefix .. 'keyed', ARGV[at]) or '', ' (%d+)$')
    if began and tonumber(began) < tonumber(ARGV[at + 1]) then -- else they have come back since
      redis.call('DEL', prefix .. 'heads:' .. ARGV[at], prefix .. 'values:' .. ARGV[at], prefix .. 'heads:\n' .. ARGV[at])
      redis.call('DEL', prefix .. 'pending:' .. ARGV[at])
      redis.call('HDEL', prefix .. 'keyed', ARGV[at])
    end
  end
  for at = ends + 2 * headless + 6, #ARGV, 2 do
    forget(ARGV[at] .. ' ' .. ARGV[at + 1])
    redis.call('EXPIRE', prefix .. 'egress:' .. ARGV[at] .. ':' .. ARGV[at + 1], ENDED_KEPT_S)
  end
  return 1
end

if ARGV[1] == 'seal' then
  if #KEYS == 4 then -- who may not push is refused before anything is written
    redis.call('PUBLISH', prefix .. 'egress:', '')
  end
  for at = 2, #ARGV, 3 do
    seal(ARGV[at], ARGV[at + 1], ARGV[at + 2])
  end
  return 1
end

if ARGV[1] == 'admit' then
  if redis.call('HGET', node_key, 'run') ~= ARGV[2] then
    forget_all()
    redis.call('HSET', node_key, 'run', ARGV[2])
  end
  return 1
end

if ARGV[1] == 'no more' then
  redis.call('HDEL', node_key, 'any')
  return 1
end

if ARGV[1] == 'open' then
  local at = 2
  while at < #ARGV do
    local rows_end, keys = at + 4 + 2 * tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
    open(ARGV[at], ARGV[at + 1], at + 5, rows_end, keys, ARGV[at + 4])
    at = rows_end + 2 * math.max(0, keys) + 1
  end
  return 1
end

local epoch, version = tonumber(ARGV[2]), tonumber(ARGV[3])
local node = redis.call('HMGET', node_key, 'epoch', 'version', 'run', 'network')
local node_epoch, node_version = tonumber(node[1] or '0'), tonumber(node[2] or '0')
local is_strange = node[4] and node[4] ~= ARGV[5]
if node_epoch > 0 and (is_strange or node_epoch < tonumber(ARGV[5])) then -- of a network that the control Redis has lost
  forget_all()
  if node[3] then
    redis.call('HSET', node_key, 'run', node[3])
  end
  node_epoch, node_version = 0, 0
end
local is_later = epoch == node_epoch and version < node_version
if epoch < node_epoch or (is_later and ARGV[1] ~= 'prepare') then
  return 0
end
if ARGV[1] == 'install' and epoch > node_epoch then
  begin_anew(epoch)
end
redis.call('HSET', node_key, 'epoch', ARGV[2], 'version', is_later and node[2] or ARGV[3], 'retention', ARGV[4],
  'network', ARGV[5])
if ARGV[1] == 'any' then
  redis.call('HSET', node_key, 'any', ARGV[2])
  return 1
end
local write = ARGV[1] == 'install' and 'HSET' or 'HSETNX'
for at = 6, #ARGV, 3 do
  redis.call(write, steps_key, ARGV[at + 1] .. ' ' .. ARGV[at], ARGV[at + 2])
end
return 1
