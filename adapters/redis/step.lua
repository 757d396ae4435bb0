-- One atomic step of a sequencing node: the twin of sequencing/node.py, which explains it.
--
-- KEYS: node, steps, counters, publishers; streams are named from the same prefix, under the same hash tag. One key more
--    where nothing is to be pushed to readers.
-- ARGV: 'publish', then region, epoch, publisher, incarnation, first, count, kind, body for each frame
--    or 'publish+', the same and what it says of keys, or '', for each frame (Extras.encode in sequencing/keyed.py)
--    or 'transfer', source, then sequence, region, epoch, last, meta, stamp, body for each frame
--    or 'close', then region, epoch, following epoch for each ingress to close.
--
-- Everything that the frames may touch is read at once and written back at once: calls cost more than numbers.

local node_key, steps_key, counters_key, publishers_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local prefix = string.sub(node_key, 1, -5)
local TRIM_EVERY_EVENTS = 1024
local TICK_META = '2 1 0 0 '
local NODE = '0'
-- Lua's unpack is limited by its C stack (8,000 slots).
local CHUNK = 4000
local floor, format = math.floor, string.format
-- A frame of more bytes, or of a call of more frames, is not pushed, but that there is something to look for. The
-- channels are named as the streams.
local PUSHED_BYTES, PUSHED_FRAMES = 1024, 8
local pushes, rung = #KEYS == 4, {}
-- Who may not push is refused before anything is written.
if pushes then
  redis.call('PUBLISH', prefix .. 'egress:', '')
end

local function push(key, frames, last, meta, stamp, body)
  if not pushes then
    return
  end
  if #body <= PUSHED_BYTES and frames <= PUSHED_FRAMES then
    redis.call('PUBLISH', key, last .. ' ' .. #meta .. ' ' .. #stamp .. '\n' .. meta .. stamp .. body)
  elseif not rung[key] then
    rung[key] = true
    redis.call('PUBLISH', key, last)
  end
end

-- Steps are written by managers; a user who publishes could write one as well, and reading it blocks the server.
local STEP_BYTES_MAX, STEPS_BYTES_MAX = 262144, 4194304
local steps_bytes = 0

local function decoded(step)
  steps_bytes = steps_bytes + #step
  if #step > STEP_BYTES_MAX or steps_bytes > STEPS_BYTES_MAX then
    error('ERR a step of a plan has ' .. #step .. ' bytes, which no manager writes')
  end
  return cjson.decode(step)
end

-- A frame alone that goes on where its publisher stopped, at an ingress that is open: what a quiet world publishes, and
-- waits for. Nothing is written here unless it is that; whatever else it may be is found out below, which takes half as
-- long again.
local ATOMS_MAX = 1000
if ARGV[1] == 'publish' and #ARGV == 9 then
  local region, epoch, publisher, incarnation, first, count = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
  local field, from = epoch .. ' ' .. region, region .. '\n' .. publisher
  local step, before = redis.call('HGET', steps_key, field), redis.call('HGET', publishers_key, from)
  step = step and decoded(step)
  local before_incarnation, before_last = string.match(before or '', '^(%d+) (%d+) ')
  local goes_on = before_incarnation == incarnation and tonumber(first) == before_last + 1
  if goes_on and step and step[1] == 'I' and #step < ATOMS_MAX then
    local fields, size = { 'r ' .. field }, #step - 1
    for i = 3, #step do
      fields[i - 1] = step[i]
    end
    size = size + 1
    fields[size] = step[2] == '-' and NODE or 'o ' .. step[2]
    local numbers = redis.call('HMGET', counters_key, unpack(fields))
    local last = (numbers[1] or 0) + count
    if floor(last / TRIM_EVERY_EVENTS) == floor((last - count) / TRIM_EVERY_EVENTS) then
      last = format('%.0f', last)
      local drawn, stamp = { fields[1], last }, {}
      for i = 2, size do
        local number = format('%.0f', (numbers[i] or 0) + 1)
        drawn[2 * i - 1], drawn[2 * i] = fields[i], number
        if i < #step then
          stamp[2 * i - 3], stamp[2 * i - 2] = fields[i], number
        end
      end
      local accepted_last = format('%.0f', before_last + count)
      local meta = ARGV[8] .. ' ' .. count .. ' ' .. incarnation .. ' ' .. first .. ' ' .. publisher
      stamp = table.concat(stamp, ',')
      if step[2] == '-' then
        local number = NODE .. ',' .. drawn[2 * size]
        stamp = stamp == '' and number or number .. ',' .. stamp
        local key = prefix .. 'egress:' .. epoch .. ':' .. region
        redis.call('XADD', key, epoch .. '-' .. last, 'm', meta, 's', stamp, 'b', ARGV[9])
        push(key, 1, last, meta, stamp, ARGV[9])
      else
        redis.call('XADD', prefix .. 'link:' .. step[2], drawn[2 * size] .. '-0',
          'r', region, 'e', epoch, 'n', last, 'm', meta, 's', stamp, 'b', ARGV[9])
      end
      -- Last, as below: what cannot be appended leaves nothing behind that would call it accepted.
      redis.call('HSET', counters_key, unpack(drawn))
      redis.call('HSET', publishers_key, from, incarnation .. ' ' .. accepted_last .. ' ' .. epoch .. ' ' .. last)
      return { 'ok ' .. epoch .. ' ' .. last }
    end
  end
end

local function int(number)
  return format('%.0f', number)
end

local function read(key, fields)
  local found = {}
  for from = 1, #fields, CHUNK do
    local to = math.min(from + CHUNK - 1, #fields)
    local values = redis.call('HMGET', key, unpack(fields, from, to))
    for i = 1, #values do
      found[fields[from + i - 1]] = values[i] or nil
    end
  end
  return found
end

local function write(key, values)
  local flat, size = {}, 0
  for field, value in pairs(values) do
    flat[size + 1], flat[size + 2] = field, value
    size = size + 2
    if size >= CHUNK then
      redis.call('HSET', key, unpack(flat, 1, size))
      size = 0
    end
  end
  if size > 0 then
    redis.call('HSET', key, unpack(flat, 1, size))
  end
end

local node = redis.call('HMGET', node_key, 'epoch', 'retention', 'any')
local node_epoch, retention, any_epoch = node[1] or '0', tonumber(node[2] or '0'), node[3]

local frames, step_fields, counter_fields, publisher_fields = {}, {}, {}, {}
local source

-- What frames say of keys: [[place, key, 1 if it ends, else 0], …], [[key, head], …]. Any publisher can write it, so
-- nothing is written before all of it has been looked at.
local KEYS_MAX, KEY_BYTES_MAX, EXTRAS_BYTES_MAX = 4096, 200, 65536
-- Region → the heads of the keys that are named, how many there are, and the epoch that began with a loss of all, or 0.
local tables, are_keyed = {}, false

local function is_key(key)
  return type(key) == 'string' and key ~= '' and #key <= KEY_BYTES_MAX
end

local function extras_of(text, region, count)
  if #text > EXTRAS_BYTES_MAX then
    error('ERR what a frame says of keys has ' .. #text .. ' bytes')
  end
  local extras = cjson.decode(text)
  local names, conditions = extras[1], extras[2]
  local found = tables[region] or { asked = {}, heads = {} }
  tables[region], are_keyed = found, true
  for _, named in ipairs(names) do
    local place = named[1]
    if not is_key(named[2]) or type(place) ~= 'number' or place % 1 ~= 0 or place < 0 or place >= count then
      error('ERR a frame names a key as no publisher does')
    end
    found.asked[named[2]] = true
  end
  for _, condition in ipairs(conditions) do
    if not is_key(condition[1]) or type(condition[2]) ~= 'string' then
      error('ERR a frame has a condition as no publisher has')
    end
    found.asked[condition[1]] = true
  end
  return extras
end

local publishes = ARGV[1] == 'publish' or ARGV[1] == 'publish+'
if publishes then
  local words = ARGV[1] == 'publish' and 8 or 9
  for at = 2, #ARGV, words do
    local region, epoch, publisher = ARGV[at], ARGV[at + 1], ARGV[at + 2]
    local incarnation, first, count = ARGV[at + 3], ARGV[at + 4], ARGV[at + 5]
    local n = #frames + 1
    frames[n] = {
      region = region, epoch = epoch, incarnation = incarnation, first = first, count = tonumber(count),
      meta = ARGV[at + 6] .. ' ' .. count .. ' ' .. incarnation .. ' ' .. first .. ' ' .. publisher,
      body = ARGV[at + 7], step_field = epoch .. ' ' .. region, publisher_field = region .. '\n' .. publisher,
    }
    if words == 9 and ARGV[at + 8] ~= '' then
      frames[n].extras = extras_of(ARGV[at + 8], region, tonumber(count))
    end
    step_fields[n] = frames[n].step_field
    publisher_fields[2 * n - 1], publisher_fields[2 * n] = frames[n].publisher_field, region .. '\n'
    counter_fields[n] = 'r ' .. frames[n].step_field
  end
elseif ARGV[1] == 'close' then
  for at = 2, #ARGV, 3 do
    local n = #frames + 1
    frames[n] = { region = ARGV[at], epoch = ARGV[at + 1], following = ARGV[at + 2] }
    step_fields[2 * n - 1] = ARGV[at + 1] .. ' ' .. ARGV[at]
    step_fields[2 * n] = ARGV[at + 2] .. ' ' .. ARGV[at]
    counter_fields[n] = 'r ' .. step_fields[2 * n - 1]
  end
else
  source = ARGV[2]
  counter_fields[1] = 'i ' .. source
  for at = 3, #ARGV, 7 do
    local n = #frames + 1
    frames[n] = {
      sequence = tonumber(ARGV[at]), region = ARGV[at + 1], epoch = ARGV[at + 2], last = tonumber(ARGV[at + 3]),
      meta = ARGV[at + 4], stamp = ARGV[at + 5], body = ARGV[at + 6],
      step_field = ARGV[at + 2] .. ' ' .. ARGV[at + 1],
    }
    step_fields[n] = frames[n].step_field
  end
end

-- A step is a JSON array: flag, next node or '-', atoms …
local steps = {}

local function read_steps(fields)
  local earlier = {}
  for field, raw in pairs(read(steps_key, fields)) do
    local step = decoded(raw)
    steps[field] = step
    local size = #counter_fields
    for i = 3, #step do
      counter_fields[size + i - 2] = step[i]
    end
    if step[2] ~= '-' then
      counter_fields[#counter_fields + 1] = 'o ' .. step[2]
    else
      counter_fields[#counter_fields + 1] = NODE
    end
    if #step[1] > 1 and step[1] ~= 'W0' then
      local before = string.sub(step[1], 2) .. string.match(field, ' .*$')
      earlier[#earlier + 1], counter_fields[#counter_fields + 1] = before, 'r ' .. before
    end
  end
  return earlier
end

-- An ingress that waits for an earlier epoch to be closed here may have to close it.
local earlier_fields = read_steps(step_fields)
if #earlier_fields > 0 then
  read_steps(earlier_fields)
end
local drawn, accepted_of, reflagged = {}, {}, {}
if any_epoch and publishes then
  for _, frame in ipairs(frames) do
    if frame.epoch == any_epoch and not steps[frame.step_field] then
      steps[frame.step_field] = { 'I', '-' }
      reflagged[frame.step_field] = '["I","-"]'
      counter_fields[#counter_fields + 1] = NODE
    end
  end
end
local counters = read(counters_key, counter_fields)
local publishers = #publisher_fields > 0 and read(publishers_key, publisher_fields) or {}

if are_keyed then
  for region, found in pairs(tables) do
    local asked = {}
    for key in pairs(found.asked) do
      asked[#asked + 1] = key
    end
    found.heads, found.changed, found.more = read(prefix .. 'heads:' .. region, asked), {}, 0
  end
end

-- The epoch that began with a loss of the region's heads, or '0'. Only who lacks a head asks.
local function lost_of(region, found)
  if found.lost == nil then
    found.is_known = redis.call('HGET', prefix .. 'keyed', region)
    found.lost = string.match(found.is_known or '', '^%d+') or '0'
  end
  return found.lost
end

local function size_of(region, found)
  found.size = found.size or redis.call('HLEN', prefix .. 'heads:' .. region)
  return found.size + found.more
end

-- Why a frame is refused for what it says of keys; nothing if it is not.
local function unmet(frame)
  local found = tables[frame.region]
  for i, condition in ipairs(frame.extras[2]) do
    local head = found.heads[condition[1]]
    if not head then
      local lost = lost_of(frame.region, found)
      head = lost ~= '0' and lost .. ' 0' or ''
    end
    if head ~= condition[2] then
      return 'conflict ' .. (i - 1) .. ' ' .. (head == '' and '0 0' or head)
    end
  end
  local last, more = {}, 0
  for _, named in ipairs(frame.extras[1]) do
    last[named[2]] = named[3]
  end
  for key, ends in pairs(last) do
    if (ends == 0) ~= (found.heads[key] ~= nil) then
      more = more + (ends == 0 and 1 or -1)
    end
  end
  if more > 0 and size_of(frame.region, found) + more > KEYS_MAX then
    return 'full ' .. KEYS_MAX
  end
end

local function name_keys(frame)
  local found, first = tables[frame.region], frame.last - frame.count + 1
  for _, named in ipairs(frame.extras[1]) do
    local key = named[2]
    local head = named[3] == 0 and frame.epoch .. ' ' .. int(first + named[1]) or nil
    if not found.heads[key] then
      lost_of(frame.region, found) -- a region that had none is noted below
      found.began = found.began or frame.epoch
    end
    if (head ~= nil) ~= (found.heads[key] ~= nil) then
      found.more = found.more + (head and 1 or -1)
    end
    found.heads[key], found.changed[key] = head, true
  end
end

local function write_heads(region, found)
  local key, set, gone = prefix .. 'heads:' .. region, {}, {}
  for name in pairs(found.changed) do
    if found.heads[name] then
      set[name] = found.heads[name]
    else
      gone[#gone + 1] = name
    end
  end
  write(key, set)
  for from = 1, #gone, CHUNK do
    redis.call('HDEL', key, unpack(gone, from, math.min(from + CHUNK - 1, #gone)))
  end
  if found.lost ~= nil and not found.is_known and next(found.changed) then
    redis.call('HSET', prefix .. 'keyed', region, '0 ' .. found.began)
  end
end

local function draw(field, count)
  local number = int((counters[field] or 0) + count)
  counters[field], drawn[field] = number, number
  return number
end

local function trim(key, frame)
  local count = tonumber(string.match(frame.meta, '^%d+ (%d+)'))
  if floor(frame.last / TRIM_EVERY_EVENTS) > floor((frame.last - count) / TRIM_EVERY_EVENTS) then
    redis.call('XTRIM', key, 'MINID', '=', frame.epoch .. '-' .. int(frame.last - retention + 1))
  end
end

-- The egress streams that this call has appended to.
local first_end, are_several_ends = nil, false

local function pass_on(step, frame)
  local stamp, size = {}, 0
  local key = step[2] == '-' and prefix .. 'egress:' .. frame.epoch .. ':' .. frame.region
  if key then
    first_end = first_end or key
    are_several_ends = are_several_ends or key ~= first_end
    stamp[1], size = NODE .. (are_several_ends and ',-' or ',') .. draw(NODE, 1), 1
  end
  if frame.stamp and frame.stamp ~= '' then
    stamp[size + 1], size = frame.stamp, size + 1
  end
  for i = 3, #step do
    stamp[size + 1], stamp[size + 2] = step[i], draw(step[i], 1)
    size = size + 2
  end
  local stamped, last = table.concat(stamp, ','), int(frame.last)
  if key then
    redis.call('XADD', key, frame.epoch .. '-' .. last, 'm', frame.meta, 's', stamped, 'b', frame.body)
    push(key, #frames, last, frame.meta, stamped, frame.body)
    if frame.last > retention then
      trim(key, frame)
    end
  else
    local id = draw('o ' .. step[2], 1) .. '-0'
    redis.call('XADD', prefix .. 'link:' .. step[2], id,
      'r', frame.region, 'e', frame.epoch, 'n', last, 'm', frame.meta, 's', stamped, 'b', frame.body)
  end
end

local function reflag(field, flag)
  steps[field][1] = flag
  reflagged[field] = cjson.encode(steps[field])
end

-- Takes no more events of a region in an epoch, and opens the ingress of the following one if it waits here for this.
local function close(region, epoch, following)
  local field = epoch .. ' ' .. region
  local step = steps[field]
  if not step or not string.match(step[1], '^[ICW]') then
    return 'stale ' .. node_epoch
  end
  if step[1] == 'C' then
    return 'seen ' .. epoch .. ' ' .. (counters['r ' .. field] or 0)
  end
  local last = draw('r ' .. field, 1)
  reflag(field, 'C')
  pass_on(step, { region = region, epoch = epoch, last = tonumber(last), meta = TICK_META, body = '' })
  local waiting = following .. ' ' .. region
  if steps[waiting] and steps[waiting][1] == 'W' .. epoch then
    reflag(waiting, 'I')
  end
  return 'ok ' .. epoch .. ' ' .. last
end

local function publish(frame)
  local step = steps[frame.step_field]
  if step and string.sub(step[1], 1, 1) == 'W' then
    if step[1] == 'W0' then
      return 'wait ' .. node_epoch
    end
    close(frame.region, string.sub(step[1], 2), frame.epoch)
  end
  if not step or step[1] ~= 'I' then
    return 'stale ' .. node_epoch
  end
  local first, count, incarnation = tonumber(frame.first), frame.count, tonumber(frame.incarnation)
  local last, before = 0, publishers[frame.publisher_field]
  local before_incarnation, before_last, before_epoch, before_region_last
  local forgotten = not before and publishers[frame.region .. '\n']
  if forgotten then
    forgotten = string.match(forgotten, '^%d+')
    if incarnation <= tonumber(forgotten) then
      return 'forgotten ' .. forgotten
    end
  end
  if before then
    before_incarnation, before_last, before_epoch, before_region_last =
      string.match(before, '^(%d+) (%d+) (%d+) (%d+)$')
    if incarnation < tonumber(before_incarnation) then
      return 'fenced ' .. before_incarnation
    end
    if incarnation == tonumber(before_incarnation) then
      last = tonumber(before_last)
    end
  end
  local frame_last = first + count - 1
  if last > 0 and frame_last == last then
    return 'seen ' .. before_epoch .. ' ' .. before_region_last
  end
  if first <= last then
    return 'past ' .. int(last)
  end
  if last > 0 and before_epoch == frame.epoch and first > last + 1 then
    return 'gap ' .. int(last)
  end
  local refused = frame.extras and unmet(frame)
  if refused then
    return refused
  end
  local region_last = draw('r ' .. frame.step_field, count)
  frame.last = tonumber(region_last)
  local accepted = frame.incarnation .. ' ' .. int(frame_last) .. ' ' .. frame.epoch .. ' ' .. region_last
  publishers[frame.publisher_field], accepted_of[frame.publisher_field] = accepted, accepted
  if frame.extras then
    name_keys(frame)
  end
  pass_on(step, frame)
  return 'ok ' .. frame.epoch .. ' ' .. region_last
end

local function transfer()
  local incoming = 'i ' .. source
  local accepted = tonumber(counters[incoming] or 0)
  for _, frame in ipairs(frames) do
    if frame.sequence > accepted then
      if frame.sequence ~= accepted + 1 then
        return { 'gap', int(accepted) }
      end
      local step = steps[frame.step_field]
      if not step and tonumber(frame.epoch) > tonumber(node_epoch) then
        return { 'unknown', int(accepted) }
      end
      if step and step[1] ~= 'S' then
        pass_on(step, frame)
      end
      accepted = tonumber(draw(incoming, 1))
    end
  end
  return { 'ok', int(accepted) }
end

local answer = {}
if source then
  answer = transfer()
elseif ARGV[1] == 'close' then
  for i, frame in ipairs(frames) do
    answer[i] = close(frame.region, frame.epoch, frame.following)
  end
else
  for i, frame in ipairs(frames) do
    answer[i] = publish(frame)
  end
end
write(counters_key, drawn)
write(publishers_key, accepted_of)
write(steps_key, reflagged)
for region, found in pairs(tables) do
  write_heads(region, found)
end
return answer
