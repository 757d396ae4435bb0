-- One atomic step of a sequencing node: the twin of sequencing/node.py, which explains it.
--
-- KEYS: node, steps, counters, publishers; streams are named from the same prefix, under the same hash tag.
-- ARGV: 'publish', then region, epoch, meta, body for each frame
--    or 'transfer', source, then sequence, region, epoch, last, meta, stamp, body for each frame.

local node_key, steps_key, counters_key, publishers_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local prefix = string.sub(node_key, 1, -5)
local TRIM_EVERY_EVENTS = 1024
-- Lua's unpack is limited by its C stack (8,000 slots).
local CHUNK = 4000

local function int(number)
  return string.format('%.0f', number)
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
  local flat = {}
  for field, value in pairs(values) do
    flat[#flat + 1] = field
    flat[#flat + 1] = value
    if #flat >= CHUNK then
      redis.call('HSET', key, unpack(flat))
      flat = {}
    end
  end
  if #flat > 0 then
    redis.call('HSET', key, unpack(flat))
  end
end

local node = redis.call('HMGET', node_key, 'epoch', 'retention')
local node_epoch, retention = node[1] or '0', tonumber(node[2] or '0')

-- Everything that the frames may touch is read at once and written back at once: a call per number costs more than
-- the numbers.
local frames = {}
local source, first_field, stride
if ARGV[1] == 'publish' then
  first_field, stride = 2, 4
else
  source, first_field, stride = ARGV[2], 3, 7
end
local step_fields = {}
for at = first_field, #ARGV, stride do
  local frame
  if source then
    frame = {
      sequence = tonumber(ARGV[at]), region = ARGV[at + 1], epoch = ARGV[at + 2], last = tonumber(ARGV[at + 3]),
      meta = ARGV[at + 4], stamp = ARGV[at + 5], body = ARGV[at + 6],
    }
  else
    frame = { region = ARGV[at], epoch = ARGV[at + 1], meta = ARGV[at + 2], stamp = '', body = ARGV[at + 3] }
  end
  frame.step_field = frame.epoch .. ' ' .. frame.region
  frames[#frames + 1] = frame
  step_fields[#step_fields + 1] = frame.step_field
end

local raw_steps = read(steps_key, step_fields)
local steps, counter_fields, publisher_fields, wanted = {}, {}, {}, {}
local function want(field)
  if not wanted[field] then
    wanted[field] = true
    counter_fields[#counter_fields + 1] = field
  end
end
if source then
  want('i ' .. source)
end
for _, frame in ipairs(frames) do
  local field = frame.step_field
  local step = steps[field]
  if not step and raw_steps[field] then
    local flag, following, atoms = string.match(raw_steps[field], '^(%a) (%S+) (%S*)$')
    step = { flag = flag, following = following, atoms = {}, atom_fields = {} }
    for atom in string.gmatch(atoms, '%d+') do
      step.atoms[#step.atoms + 1] = atom
      local atom_field = 'a ' .. frame.epoch .. ' ' .. atom
      step.atom_fields[#step.atom_fields + 1] = atom_field
      want(atom_field)
    end
    if following ~= '-' then
      want('o ' .. following)
    end
    steps[field] = step
  end
  frame.step = step
  if not source then
    frame.kind, frame.count, frame.incarnation, frame.first, frame.publisher =
      string.match(frame.meta, '^(%d+) (%d+) (%d+) (%d+) (.+)$')
    frame.publisher_field = frame.region .. '\n' .. frame.publisher
    publisher_fields[#publisher_fields + 1] = frame.publisher_field
    want('r ' .. field)
  end
end
local counters = read(counters_key, counter_fields)
local publishers = source and {} or read(publishers_key, publisher_fields)
local drawn, accepted_of = {}, {}

local function draw(field, count)
  local number = tonumber(counters[field] or '0') + count
  counters[field] = int(number)
  drawn[field] = counters[field]
  return counters[field]
end

local function trim(key, frame)
  local count = tonumber(string.match(frame.meta, '^%d+ (%d+)'))
  local crossed = math.floor(frame.last / TRIM_EVERY_EVENTS) > math.floor((frame.last - count) / TRIM_EVERY_EVENTS)
  if crossed and frame.last > retention then
    redis.call('XTRIM', key, 'MINID', '=', frame.epoch .. '-' .. int(frame.last - retention + 1))
  end
end

local function pass_on(frame)
  local step = frame.step
  local stamp = {}
  if frame.stamp ~= '' then
    stamp[1] = frame.stamp
  end
  for i = 1, #step.atoms do
    stamp[#stamp + 1] = step.atoms[i] .. ',' .. draw(step.atom_fields[i], 1)
  end
  local stamped = table.concat(stamp, ',')
  local last = int(frame.last)
  if step.following == '-' then
    local key = prefix .. 'egress:' .. frame.region
    redis.call('XADD', key, frame.epoch .. '-' .. last, 'm', frame.meta, 's', stamped, 'b', frame.body)
    trim(key, frame)
  else
    local id = draw('o ' .. step.following, 1) .. '-0'
    redis.call('XADD', prefix .. 'link:' .. step.following, id,
      'r', frame.region, 'e', frame.epoch, 'n', last, 'm', frame.meta, 's', stamped, 'b', frame.body)
  end
end

local function publish(frame)
  if not frame.step or frame.step.flag ~= 'I' then
    return 'stale ' .. node_epoch
  end
  local first, count, incarnation = tonumber(frame.first), tonumber(frame.count), tonumber(frame.incarnation)
  local last, before = 0, publishers[frame.publisher_field]
  local before_incarnation, before_last, before_epoch, before_region_last
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
  if first > last + 1 then
    return 'gap ' .. int(last)
  end
  local region_last = draw('r ' .. frame.step_field, count)
  frame.last = tonumber(region_last)
  local now_accepted = frame.incarnation .. ' ' .. int(frame_last) .. ' ' .. frame.epoch .. ' ' .. region_last
  publishers[frame.publisher_field] = now_accepted
  accepted_of[frame.publisher_field] = now_accepted
  pass_on(frame)
  return 'ok ' .. frame.epoch .. ' ' .. region_last
end

local function transfer()
  local incoming = 'i ' .. source
  local accepted = tonumber(counters[incoming] or '0')
  for _, frame in ipairs(frames) do
    if frame.sequence > accepted then
      if frame.sequence ~= accepted + 1 then
        return { 'gap', int(accepted) }
      end
      if not frame.step then
        return { 'unknown', int(accepted) }
      end
      pass_on(frame)
      accepted = tonumber(draw(incoming, 1))
    end
  end
  return { 'ok', int(accepted) }
end

local answer
if source then
  answer = transfer()
else
  answer = {}
  for i, frame in ipairs(frames) do
    answer[i] = publish(frame)
  end
end
write(counters_key, drawn)
write(publishers_key, accepted_of)
return answer
