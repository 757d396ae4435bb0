-- One atomic step of a sequencing node: the twin of sequencing/node.py, which explains it.
--
-- KEYS: node, steps, counters, publishers; streams are named from the same prefix, under the same hash tag. One key more
--    where nothing is to be pushed to readers.
-- ARGV: 'publish', then region, epoch, publisher, incarnation, first, count, kind, body for each frame
--    or 'publish+', the same and what it says of keys and further regions, or '', for each frame (Extras.encode in
--    sequencing/keyed.py)
--    or 'transfer', source, then sequence, region, epoch, last, meta, stamp, body for each frame; of one of several
--    regions, those that go the same way: regions, lasts and stamps are lines
--    or 'transfer+', the same and what is said of it while it is undecided, or '', for each frame (LinkedFrame.said)
--    or 'resolve', then frame and judgement for each frame with keys that has passed here undecided
--    or 'close', then region, epoch, following epoch for each ingress to close.
--
-- Everything that the frames may touch is read at once and written back at once: calls cost more than numbers.

local node_key, steps_key, counters_key, publishers_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local prefix = string.sub(node_key, 1, -5)
local name = string.match(prefix, '^gamecast:{(.*)}:$')
local TRIM_EVERY_EVENTS = 1024
local TICK_META = '2 1 0 0 '
local NODE, COPIED = '0', 'w'
local VOID, ASK, KEYED = '4', '5', '+'
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
local OPEN_END = '["I","-"]' -- an open ingress whose region ends here, and has no atoms
if ARGV[1] == 'publish' and #ARGV == 9 and ARGV[8] ~= ASK then
  local region, epoch, publisher, incarnation, first, count = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
  local field, from = epoch .. ' ' .. region, region .. '\n' .. publisher
  local step, before = redis.call('HGET', steps_key, field), redis.call('HGET', publishers_key, from)
  local known = incarnation .. ' '
  local ends = before and string.sub(before, 1, #known) == known and string.find(before, ' ', #known + 1, true)
  local before_last = ends and tonumber(string.sub(before, #known + 1, ends - 1))
  local goes_on = before_last and tonumber(first) == before_last + 1
  if goes_on and step == OPEN_END then
    local counter = 'r ' .. field
    local numbers = redis.call('HMGET', counters_key, counter, NODE)
    local last = (numbers[1] or 0) + count
    if floor(last / TRIM_EVERY_EVENTS) == floor((last - count) / TRIM_EVERY_EVENTS) then
      last = format('%.0f', last)
      local number = format('%.0f', (numbers[2] or 0) + 1)
      local meta = ARGV[8] .. ' ' .. count .. ' ' .. known .. first .. ' ' .. publisher
      local stamp, key = '0,' .. number, prefix .. 'egress:' .. epoch .. ':' .. region
      redis.call('XADD', key, epoch .. '-' .. last, 'm', meta, 's', stamp, 'b', ARGV[9])
      push(key, 1, last, meta, stamp, ARGV[9])
      redis.call('HSET', counters_key, counter, last, NODE, number)
      redis.call('HSET', publishers_key, from,
        known .. format('%.0f', before_last + count) .. ' ' .. epoch .. ' ' .. last)
      return { 'ok ' .. epoch .. ' ' .. last }
    end
  end
  step = goes_on and step and decoded(step)
  if step and step[1] == 'I' and #step < ATOMS_MAX then
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
  local by_field = {}
  for from = 1, #fields, CHUNK do
    local to = math.min(from + CHUNK - 1, #fields)
    local values = redis.call('HMGET', key, unpack(fields, from, to))
    for i = 1, #values do
      by_field[fields[from + i - 1]] = values[i] or nil
    end
  end
  return by_field
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

local node = redis.call('HMGET', node_key, 'epoch', 'retention', 'any', 'pending')
local node_epoch, retention, any_epoch, has_pending = node[1] or '0', tonumber(node[2] or '0'), node[3], node[4]

local frames, step_fields, counter_fields, publisher_fields = {}, {}, {}, {}
local source

-- What frames say of keys: [[place, key, 1 if it ends, else 0, where the body has its payload: before and last byte,
-- when it was sent and whether it is binary], …], [[key, head, place of its region], …], and the further regions: [[region,
-- the publisher's first number], …]. Any publisher can write it, so nothing is written before all of it has been looked at.
local KEYS_MAX, KEY_BYTES_MAX, EXTRAS_BYTES_MAX, REGIONS_MAX = 4096, 200, 65536, 64
-- Keys that are kept free for those of presence and ownership; what one client of gateways may have, and what all may.
local RESERVED, SHARE_KEYS, SHARE_BYTES, SHARES_KEYS, SHARES_BYTES = 512, 256, 1048576, 3072, 8388608
-- Region → the heads of the keys that are named, how many there are, and the epoch that began with a loss of all, or 0.
local tables, are_keyed = {}, false

local function is_key(key)
  return type(key) == 'string' and key ~= '' and #key <= KEY_BYTES_MAX
end

local function is_number(number)
  return type(number) == 'number' and number % 1 == 0 and number >= 0 and number <= 9007199254740992
end

local function keys_of(region)
  local state = tables[region] or { asked = {}, heads = {}, pending = {}, undecided = {} }
  tables[region], are_keyed = state, true
  return state
end

-- The parts of a frame: itself, and what it is in its further regions.
local function parts_of(frame, also)
  local parts, seen = { frame }, { [frame.region] = true }
  for i, part in ipairs(also) do
    local region, first = part[1], part[2]
    if type(region) ~= 'string' or region == '' or seen[region] or not is_number(first) or i >= REGIONS_MAX then
      error('ERR a frame names regions as no publisher does')
    end
    seen[region] = true
    parts[i + 1] = {
      region = region, epoch = frame.epoch, incarnation = frame.incarnation, first = int(first), count = frame.count,
      body = frame.body, step_field = frame.epoch .. ' ' .. region, publisher_field = region .. '\n' .. frame.publisher,
      publisher = frame.publisher,
    }
  end
  return parts
end

local function read_extras(frame, text)
  if #text > EXTRAS_BYTES_MAX then
    error('ERR what a frame says of keys has ' .. #text .. ' bytes')
  end
  local extras = cjson.decode(text)
  local names, conditions, parts = extras[1], extras[2], parts_of(frame, extras[3] or {})
  frame.late, frame.text, frame.way = {}, text, table.concat(extras[5] or {}, ' ')
  for i, place in ipairs(extras[4] or {}) do
    local part = is_number(place[1]) and parts[place[1] + 1]
    if not part or not parts[2] or type(place[2]) ~= 'string' or string.find(place[2], '\n') then
      error('ERR a frame names nodes as no publisher does')
    end
    part.elsewhere, part.away, frame.late[i] = place[2], true, part
  end
  for _, named in ipairs(names) do
    local from, to, sent = named[4], named[5], named[6]
    local has_payload = is_number(from) and is_number(to) and from <= to and to <= #frame.body and type(sent) == 'string'
    if not has_payload or not is_key(named[2]) or not is_number(named[1]) or named[1] >= frame.count then
      error('ERR a frame names a key as no publisher does')
    end
    for _, part in ipairs(parts) do
      keys_of(part.region).asked[named[2]] = true
    end
  end
  for _, condition in ipairs(conditions) do
    local part = is_number(condition[3]) and parts[condition[3] + 1]
    if not part or not is_key(condition[1]) or type(condition[2]) ~= 'string' then
      error('ERR a frame has a condition as no publisher has')
    end
    keys_of(part.region).asked[condition[1]] = true
  end
  frame.names, frame.conditions, frame.parts = names, conditions, parts
end

-- Reads of a frame that a region has yet to number what its publisher has said: its regions, and its numbers there.
local function read_undecided(frame, said)
  local lines = {}
  for line in string.gmatch(frame.parts[1].meta .. '\n', '(.-)\n') do
    lines[#lines + 1] = line
  end
  local count, incarnation, publisher = string.match(lines[1], '^%d+ (%d+) (%d+) %d+ (.*)$')
  frame.lines, frame.places, frame.said, frame.refused, frame.publisher = lines, {}, said, '', publisher
  local firsts = {}
  for i = 2, #lines, 3 do
    frame.places[lines[i]], firsts[#firsts + 1] = i, lines[i + 2] .. ' ' .. lines[i]
  end
  local which = table.concat(firsts, '\n')
  frame.outcome, frame.which = lines[2] .. '\n' .. publisher, incarnation .. ' ' .. #which .. '\n' .. which
  for _, part in ipairs(frame.parts) do
    if part.last == 0 then
      part.count, part.incarnation, part.first = tonumber(count), incarnation, lines[frame.places[part.region] + 2]
      part.publisher_field, part.publisher = part.region .. '\n' .. publisher, publisher
      local n = #publisher_fields
      publisher_fields[n + 1], publisher_fields[n + 2] = part.publisher_field, part.region .. '\n'
      counter_fields[#counter_fields + 1] = 'r ' .. part.step_field
    end
  end
  frame.id = publisher .. '\n' .. incarnation .. '\n' .. which
  if said == '' then
    return
  elseif string.sub(said, 1, 1) ~= '[' then
    frame.is_keyed = string.sub(said, 1, 1) == KEYED
    frame.refused = frame.is_keyed and string.sub(said, 2) or said
    return
  end
  local extras, by_region, parts = cjson.decode(said), {}, {}
  for _, part in ipairs(frame.parts) do
    by_region[part.region] = part.last == 0 and part.stamp == name and part or nil
  end
  for place = 2, #lines, 3 do
    parts[#parts + 1] = by_region[lines[place]] or { region = lines[place], away = true }
  end
  frame.way, frame.is_keyed = table.concat(extras[5], ' '), next(extras[1]) ~= nil
  frame.keys = { names = extras[1], conditions = extras[2], parts = parts, publisher = publisher }
  for _, part in pairs(by_region) do
    for _, named in ipairs(extras[1]) do
      keys_of(part.region).asked[named[2]] = true
    end
  end
  for _, condition in ipairs(extras[2]) do
    local part = parts[condition[3] + 1]
    if not part.away then
      keys_of(part.region).asked[condition[1]] = true
    end
  end
end

-- What of frames with keys waits to be decided: frame → where it went; of those in question here only.
local passing_of, resolved = {}, {}

-- The writes that are pending of a key, in order: which frame, epoch, number and value, nothing if the key ends.
local function writes_in(text)
  local writes, at = {}, 1
  while at <= #text do
    local _, to, of_bytes, bytes, epoch, number = string.find(text, '^(%d+) (%-?%d+) (%d+) (%d+)\n', at)
    local from = to + 1 + of_bytes
    at = from + math.max(0, tonumber(bytes))
    writes[#writes + 1] = {
      of = string.sub(text, to + 1, from - 1), epoch = epoch, number = number,
      value = tonumber(bytes) >= 0 and string.sub(text, from, at - 1) or nil,
    }
  end
  return writes
end

local function written(write)
  return #write.of .. ' ' .. (write.value and #write.value or -1) .. ' ' .. write.epoch .. ' ' .. write.number .. '\n'
    .. write.of .. (write.value or '')
end

-- The link that a frame came by, and the regions in which its writes are pending here.
local function read_where(text)
  local link, regions = string.match(text, '^(.-)\n.-\n[^\n]*(.*)$')
  return link, string.gmatch(regions, '\n([^\n]*)')
end

local function read_passing(frames_asked)
  passing_of = read(prefix .. 'undecided', frames_asked)
  for _, text in pairs(passing_of) do
    local _, regions = read_where(text)
    for region in regions do
      local state, all = keys_of(region), redis.call('HGETALL', prefix .. 'pending:' .. region)
      for i = 1, #all, 2 do
        state.pending[all[i]], state.asked[all[i]] = all[i + 1], true
      end
    end
  end
end

local publishes = ARGV[1] == 'publish' or ARGV[1] == 'publish+'
if publishes then
  local words = ARGV[1] == 'publish' and 8 or 9
  for at = 2, #ARGV, words do
    local region, epoch, publisher = ARGV[at], ARGV[at + 1], ARGV[at + 2]
    local incarnation, first, count = ARGV[at + 3], ARGV[at + 4], ARGV[at + 5]
    local n = #frames + 1
    local frame = {
      region = region, epoch = epoch, incarnation = incarnation, first = first, count = tonumber(count),
      meta = ARGV[at + 6] .. ' ' .. count .. ' ' .. incarnation .. ' ' .. first .. ' ' .. publisher,
      body = ARGV[at + 7], step_field = epoch .. ' ' .. region, publisher_field = region .. '\n' .. publisher,
    }
    frames[n] = frame
    if ARGV[at + 6] == ASK then
      frame.asks = region .. '\n' .. publisher
    end
    if words == 9 and ARGV[at + 8] ~= '' then
      frame.publisher = publisher -- of a frame that names keys
      read_extras(frame, ARGV[at + 8])
      for i = 2, #frame.parts do
        local part, m = frame.parts[i], #step_fields + 1
        step_fields[m], counter_fields[m] = part.step_field, 'r ' .. part.step_field
        publisher_fields[2 * m - 1], publisher_fields[2 * m] = part.publisher_field, part.region .. '\n'
      end
    end
    local m = #step_fields + 1
    step_fields[m], counter_fields[m] = frame.step_field, 'r ' .. frame.step_field
    publisher_fields[2 * m - 1], publisher_fields[2 * m] = frame.publisher_field, region .. '\n'
  end
elseif ARGV[1] == 'close' then
  for at = 2, #ARGV, 3 do
    local n = #frames + 1
    frames[n] = { region = ARGV[at], epoch = ARGV[at + 1], following = ARGV[at + 2] }
    step_fields[2 * n - 1] = ARGV[at + 1] .. ' ' .. ARGV[at]
    step_fields[2 * n] = ARGV[at + 2] .. ' ' .. ARGV[at]
    counter_fields[n] = 'r ' .. step_fields[2 * n - 1]
  end
elseif ARGV[1] == 'resolve' then
  for at = 2, #ARGV, 2 do
    resolved[#resolved + 1] = ARGV[at]
  end
  read_passing(resolved)
else
  source = ARGV[2]
  counter_fields[1] = 'i ' .. source
  local function lines(text)
    return string.gmatch(text .. '\n', '(.-)\n')
  end
  local words = ARGV[1] == 'transfer' and 7 or 8
  for at = 3, #ARGV, words do
    local epoch, parts, is_undecided = ARGV[at + 2], {}, false
    local region, last, stamp = lines(ARGV[at + 1]), lines(ARGV[at + 3]), lines(ARGV[at + 5])
    for name in region do
      local part = {
        region = name, epoch = epoch, last = tonumber(last()), meta = ARGV[at + 4], stamp = stamp(),
        body = ARGV[at + 6], step_field = epoch .. ' ' .. name,
      }
      parts[#parts + 1], step_fields[#step_fields + 1] = part, part.step_field
      is_undecided = is_undecided or part.last == 0
    end
    local frame = { sequence = tonumber(ARGV[at]), epoch = epoch, parts = parts }
    frames[#frames + 1] = frame
    if is_undecided then
      read_undecided(frame, words == 8 and ARGV[at + 7] or '')
    end
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
  for _, field in ipairs(step_fields) do
    if not steps[field] and string.match(field, '^%d+') == any_epoch then
      steps[field] = { 'I', '-' }
      reflagged[field] = '["I","-"]'
      counter_fields[#counter_fields + 1] = NODE
    end
  end
end
local counters = read(counters_key, counter_fields)
local publishers = #publisher_fields > 0 and read(publishers_key, publisher_fields) or {}

if are_keyed then
  for region, state in pairs(tables) do
    local asked = {}
    for key in pairs(state.asked) do
      asked[#asked + 1] = key
    end
    state.heads, state.changed, state.more = read(prefix .. 'heads:' .. region, asked), {}, 0
    state.shares, state.held, state.moved = {}, {}, {}
    if has_pending and not resolved[1] then
      state.pending = read(prefix .. 'pending:' .. region, asked)
    end
  end
end

-- The epoch that began with a loss of the region's heads, or '0'. Only who lacks a head asks.
local function lost_of(region, state)
  if state.lost == nil then
    state.is_known = redis.call('HGET', prefix .. 'keyed', region)
    state.lost = string.match(state.is_known or '', '^%d+') or '0'
  end
  return state.lost
end

local function size_of(region, state)
  state.size = state.size or redis.call('HLEN', prefix .. 'heads:' .. region)
  return state.size + state.more
end

local function is_reserved(key)
  return string.sub(key, 1, 1) == '@' or string.sub(key, 1, 6) == 'owner:'
end

-- The client of gateways that publishes under a name; nothing for a game server.
local function client_of(publisher)
  return string.match(publisher, '^~([^~]*)')
end

-- How many keys the clients of gateways have in a region, and how many bytes of values: 'a' of all, 's…' of one. What
-- they have set last counts, but for presence and ownership.
local function share_of(region, state, field)
  local share = state.shares[field]
  if not share then
    local text = redis.call('HGET', prefix .. 'heads:\n' .. region, field)
    local keys, bytes = string.match(text or '0 0', '^(%d+) (%d+)$')
    share = { tonumber(keys or 0), tonumber(bytes or 0) }
    state.shares[field] = share
  end
  return share
end

-- Whose a key is, and the bytes of its value; false if it is no client's.
local function held(region, state, key)
  local known = state.held[key]
  if known == nil then
    known = false
    if share_of(region, state, 'a')[1] > 0 then
      local text = redis.call('HGET', prefix .. 'heads:\n' .. region, 'k' .. key)
      local size, client = string.match(text or '', '^(%d+) (.*)$')
      known = size and { client, tonumber(size) } or false
    end
    state.held[key] = known
  end
  return known
end

local function value_bytes(named, publisher)
  return #named[6] + #publisher + 2 + named[5] - named[4]
end

-- Why a client's frame would have more than its share of a region; nothing if it would not. ``last``: the last that it
-- says of each key.
local function beyond_share(region, state, last, publisher)
  local client = client_of(publisher)
  if not client then
    return
  end
  local keys, bytes, all_keys, all_bytes = 0, 0, 0, 0
  for key, named in pairs(last) do
    if not is_reserved(key) then
      local before = held(region, state, key)
      if before then
        all_keys, all_bytes = all_keys - 1, all_bytes - before[2]
        if before[1] == client then
          keys, bytes = keys - 1, bytes - before[2]
        end
      end
      if named[3] == 0 then
        local size = value_bytes(named, publisher)
        keys, bytes, all_keys, all_bytes = keys + 1, bytes + size, all_keys + 1, all_bytes + size
      end
    end
  end
  local share, all = share_of(region, state, 's' .. client), share_of(region, state, 'a')
  if keys > 0 and share[1] + keys > SHARE_KEYS then
    return 'full ' .. SHARE_KEYS .. ' 1'
  elseif bytes > 0 and share[2] + bytes > SHARE_BYTES then
    return 'full ' .. SHARE_BYTES .. ' 2'
  elseif all_keys > 0 and all[1] + all_keys > SHARES_KEYS then
    return 'full ' .. SHARES_KEYS .. ' 3'
  elseif all_bytes > 0 and all[2] + all_bytes > SHARES_BYTES then
    return 'full ' .. SHARES_BYTES .. ' 4'
  end
end

local function add_to_share(region, state, field, keys, bytes)
  local share = share_of(region, state, field)
  share[1], share[2], state.moved[field] = math.max(0, share[1] + keys), math.max(0, share[2] + bytes), true
end

-- Notes whose a key is now; ``size``: of its value, nothing if it is no client's, or ends.
local function hold(region, state, key, client, size)
  local before = held(region, state, key)
  if before then
    add_to_share(region, state, 's' .. before[1], -1, -before[2])
    add_to_share(region, state, 'a', -1, -before[2])
  end
  if size then
    add_to_share(region, state, 's' .. client, 1, size)
    add_to_share(region, state, 'a', 1, size)
  end
  if before or size then
    state.held[key], state.moved['k' .. key] = size and { client, size } or false, true
  end
end

local function write_shares(region, state)
  local set, gone, key = {}, {}, prefix .. 'heads:\n' .. region
  for field in pairs(state.moved) do
    local share, held_now = state.shares[field], state.held[string.sub(field, 2)]
    if string.sub(field, 1, 1) ~= 'k' then
      set[field] = share[1] > 0 and int(share[1]) .. ' ' .. int(share[2]) or nil
    elseif held_now then
      set[field] = int(held_now[2]) .. ' ' .. held_now[1]
    end
    if not set[field] then
      gone[#gone + 1] = field
    end
  end
  write(key, set)
  for from = 1, #gone, CHUNK do
    redis.call('HDEL', key, unpack(gone, from, math.min(from + CHUNK - 1, #gone)))
  end
end

-- Why a frame is refused for what it says of keys; nothing if it is not.
local function unmet(frame)
  for i, condition in ipairs(frame.conditions) do
    local part = frame.parts[condition[3] + 1]
    if not part.away then
      local region = part.region
      local state = tables[region]
      if state.pending[condition[1]] then
        return 'pending ' .. (i - 1)
      end
      local head = state.heads[condition[1]]
      if not head then
        local lost = lost_of(region, state)
        head = lost ~= '0' and lost .. ' 0' or ''
      end
      if head ~= condition[2] then
        return 'conflict ' .. (i - 1) .. ' ' .. (head == '' and '0 0' or head)
      end
    end
  end
  local last = {}
  for _, named in ipairs(frame.names) do
    last[named[2]] = named
  end
  for _, part in ipairs(frame.parts) do
    local state, more, most = tables[part.region], 0, KEYS_MAX
    for key, named in pairs(part.away and {} or last) do
      if (named[3] == 0) ~= (state.heads[key] ~= nil) then
        more = more + (named[3] == 0 and 1 or -1)
        most = named[3] == 0 and not is_reserved(key) and KEYS_MAX - RESERVED or most
      end
    end
    if more > 0 and size_of(part.region, state) + more > most then
      return 'full ' .. most .. ' 0'
    end
    local beyond = next(last) and not part.away and beyond_share(part.region, state, last, frame.publisher)
    if beyond then
      return beyond
    end
  end
end

local function name_keys(frame, names)
  local state, first = tables[frame.region], frame.last - frame.count + 1
  for _, named in ipairs(names) do
    local key = named[2]
    local head = named[3] == 0 and frame.epoch .. ' ' .. int(first + named[1]) or nil
    if not state.heads[key] then
      lost_of(frame.region, state) -- a region that had none is noted below
      state.began = state.began or frame.epoch
    end
    if (head ~= nil) ~= (state.heads[key] ~= nil) then
      state.more = state.more + (head and 1 or -1)
    end
    state.heads[key] = head
    if state.pending[key] then
      state.pending[key], state.undecided[key] = nil, true
    end
    if not is_reserved(key) then
      local client = client_of(frame.publisher)
      hold(frame.region, state, key, client, head and client and value_bytes(named, frame.publisher))
    end
    state.changed[key] = head and named[6] .. ' ' .. frame.publisher .. '\n' .. string.sub(frame.body, named[4] + 1, named[5])
      or false
  end
end

-- The names of a frame that a later node may still refuse.
local function name_later(frame, names, of)
  local state, first, last = tables[frame.region], frame.last - frame.count + 1, {}
  for _, named in ipairs(names) do
    last[named[2]] = named
  end
  for key, named in pairs(last) do
    local value = named[3] == 0
      and named[6] .. ' ' .. frame.publisher .. '\n' .. string.sub(frame.body, named[4] + 1, named[5]) or nil
    local write = { of = of, epoch = frame.epoch, number = int(first + named[1]), value = value }
    state.pending[key], state.undecided[key] = (state.pending[key] or '') .. written(write), true
  end
end

-- Applies or drops what a frame has written of the keys of a region.
local function resolve_in(region, of, judgement)
  local state = tables[region]
  for key, text in pairs(state.pending) do
    local writes, kept, place = writes_in(text), {}, nil
    for i, write in ipairs(writes) do
      if write.of == of then
        place = i
      end
    end
    local write = place and writes[place]
    if write then
      for i, other in ipairs(writes) do
        if i > place or (judgement == 'no' and i < place) then
          kept[#kept + 1] = written(other)
        end
      end
      state.pending[key], state.undecided[key] = kept[1] and table.concat(kept) or nil, true
    end
    if write and judgement ~= 'no' then
      if not state.heads[key] then
        lost_of(region, state)
        state.began = state.began or write.epoch
      end
      local value, lost_in = write.value, string.match(judgement, '^lost (%d+)$')
      state.heads[key] = lost_in and lost_in .. ' 0' or (value and write.epoch .. ' ' .. write.number) or nil
      local client = value and not lost_in and string.match(value, '^[^ \n]* [^ \n]* ~([^~\n]*)')
      if not is_reserved(key) then
        hold(region, state, key, client, client and #value or nil)
      end
      state.changed[key] = lost_in and true or value or false
    end
  end
end

local function write_heads(region, state)
  local set, values, gone, pending = {}, {}, {}, {}
  for name, value in pairs(state.changed) do
    if value then
      set[name], values[name] = state.heads[name], value ~= true and value or nil
      if value == true then -- what it is, is not known
        redis.call('HDEL', prefix .. 'values:' .. region, name)
      end
    else
      gone[#gone + 1] = name
    end
  end
  for name in pairs(state.undecided) do
    pending[name] = state.pending[name]
    if not pending[name] then
      redis.call('HDEL', prefix .. 'pending:' .. region, name)
    end
  end
  write(prefix .. 'pending:' .. region, pending)
  write(prefix .. 'heads:' .. region, set)
  write(prefix .. 'values:' .. region, values)
  for from = 1, #gone, CHUNK do
    local to = math.min(from + CHUNK - 1, #gone)
    redis.call('HDEL', prefix .. 'heads:' .. region, unpack(gone, from, to))
    redis.call('HDEL', prefix .. 'values:' .. region, unpack(gone, from, to))
  end
  write_shares(region, state)
  if state.lost ~= nil and not state.is_known and next(state.changed) then
    redis.call('HSET', prefix .. 'keyed', region, '0 ' .. state.began)
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

local function egress_of(step, frame)
  return step[2] == '-' and prefix .. 'egress:' .. frame.epoch .. ':' .. frame.region
end

-- The number of a frame that ends: marked if the call has ended another one in another stream before.
local function end_number(key)
  first_end = first_end or key
  are_several_ends = are_several_ends or key ~= first_end
  return NODE .. (are_several_ends and ',-' or ',') .. draw(NODE, 1)
end

local function stamp_of(step, frame, number)
  local stamp, size = { number }, number and 1 or 0
  if frame.stamp and frame.stamp ~= '' then
    stamp[size + 1], size = frame.stamp, size + 1
  end
  for i = 3, #step do
    stamp[size + 1], stamp[size + 2] = step[i], draw(step[i], 1)
    size = size + 2
  end
  return table.concat(stamp, ',')
end

local function append(key, frame, stamped)
  local last = int(frame.last)
  redis.call('XADD', key, frame.epoch .. '-' .. last, 'm', frame.meta, 's', stamped, 'b', frame.body)
  push(key, #frames, last, frame.meta, stamped, frame.body)
  if frame.last > retention then
    trim(key, frame)
  end
end

local function send(target, frame, region, last, stamped, said)
  local key, id = prefix .. 'link:' .. target, draw('o ' .. target, 1) .. '-0'
  if said then
    redis.call('XADD', key, id, 'r', region, 'e', frame.epoch, 'n', last, 'm', frame.meta, 's', stamped,
      'b', frame.body, 'x', said)
  else -- nearly always: without a table to make and to unpack
    redis.call('XADD', key, id, 'r', region, 'e', frame.epoch, 'n', last, 'm', frame.meta, 's', stamped,
      'b', frame.body)
  end
end

local function pass_on(step, frame)
  local key = egress_of(step, frame)
  if key then
    append(key, frame, stamp_of(step, frame, end_number(key)))
  else
    send(step[2], frame, frame.region, int(frame.last), stamp_of(step, frame))
  end
end

-- The copies of a frame of several regions: they follow one another, and those that go the same way are one entry.
-- ``late``: those of an undecided frame that have no numbers, and go with the others; ``said``: see LinkedFrame.said.
local function pass_on_all(parts, late, said)
  local targets, leaving = {}, {}
  for _, part in ipairs(parts) do
    local step = steps[part.step_field]
    local key = egress_of(step, part)
    if key then
      append(key, part, stamp_of(step, part, end_number(key)))
    else
      local way = leaving[step[2]]
      if not way then
        way = { regions = {}, lasts = {}, stamps = {} }
        leaving[step[2]], targets[#targets + 1] = way, step[2]
      end
      local n = #way.regions + 1
      way.regions[n], way.lasts[n], way.stamps[n] = part.region, int(part.last), stamp_of(step, part)
    end
  end
  for _, target in ipairs(targets) do
    local way = leaving[target]
    local n = #way.regions
    for i, part in ipairs(late or {}) do
      way.regions[n + i], way.lasts[n + i], way.stamps[n + i] = part.region, '0', part.stamp
    end
    local what = late and next(late) and said ~= '' and said
    send(target, parts[1], table.concat(way.regions, '\n'), table.concat(way.lasts, '\n'),
      table.concat(way.stamps, '\n'), what)
  end
end

-- What is noted of frames with keys that go on undecided, and that are decided.
local passed, verdicts = {}, {}

-- Whether some parts go on to one node.
local function go_one_way(parts)
  local following
  for _, part in ipairs(parts) do
    local target = steps[part.step_field][2]
    if target == '-' or (following and target ~= following) then
      return false
    end
    following = target
  end
  return following ~= nil
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

-- Whether a frame is accepted in its region: nothing, or what it is answered, and 'seen' with the numbers that it got.
local function look(frame)
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
    return 'seen', before_epoch, before_region_last
  end
  if first <= last then
    return 'past ' .. int(last)
  end
  if last > 0 and before_epoch == frame.epoch and first > last + 1 then
    return 'gap ' .. int(last)
  end
end

local function accept(frame)
  local region_last = draw('r ' .. frame.step_field, frame.count)
  frame.last = tonumber(region_last)
  local frame_last = int(tonumber(frame.first) + frame.count - 1)
  local accepted = frame.incarnation .. ' ' .. frame_last .. ' ' .. frame.epoch .. ' ' .. region_last
  publishers[frame.publisher_field], accepted_of[frame.publisher_field] = accepted, accepted
  return region_last
end

local function publish_alone(frame)
  local refused, epoch, last = look(frame)
  if refused then
    return epoch and refused .. ' ' .. epoch .. ' ' .. last or refused
  end
  refused = frame.names and unmet(frame)
  if refused then
    return refused
  end
  last = accept(frame)
  if frame.names then
    name_keys(frame, frame.names)
  end
  pass_on(steps[frame.step_field], frame)
  return 'ok ' .. frame.epoch .. ' ' .. last
end

-- What is answered if a frame of several regions has entered here before, also once its epoch is over. ``begun``: its
-- parts that begin here.
local function accepted_before(frame, begun)
  local region_lasts = {}
  for _, part in ipairs(begun) do
    local incarnation, last, epoch, region_last =
      string.match(publishers[part.publisher_field] or '', '^(%d+) (%d+) (%d+) (%d+)$')
    if incarnation ~= part.incarnation or epoch ~= part.epoch
      or tonumber(last) ~= tonumber(part.first) + part.count - 1 then
      return
    end
    region_lasts[part.region] = region_last
  end
  local lasts = {}
  for i, part in ipairs(frame.parts) do
    lasts[i] = region_lasts[part.region] or '0'
  end
  return 'seen ' .. frame.epoch .. ' ' .. table.concat(lasts, ' ')
end

-- Notes that a frame with keys goes on undecided. ``begun``: its parts that were numbered here; ``parts``: those that
-- go on, of which one tells where to.
local function note_passing(of, link, begun, frame, parts)
  local lines = { link, steps[(parts or begun)[1].step_field][2], frame.epoch .. ' ' .. frame.way }
  for _, part in ipairs(begun) do
    lines[#lines + 1] = part.region
  end
  passed[of] = table.concat(lines, '\n')
end

-- All of a frame's regions accept it, or none that begins here.
local function publish_in_all(frame)
  local begun, late, lasts = {}, frame.late, {}
  for i, part in ipairs(frame.parts) do
    lasts[i] = '0'
    begun[#begun + 1] = not part.elsewhere and part or nil
  end
  if not begun[1] then
    return 'stale ' .. node_epoch
  end
  local known = accepted_before(frame, begun)
  if known then
    return known
  end
  local seen_in, seen, first_seen = nil, 0, nil
  local are_same, looked = true, {}
  for i, part in ipairs(frame.parts) do
    local refused, epoch, last
    if not part.elsewhere then
      refused, epoch, last = look(part)
    end
    if refused and not epoch then
      looked[i] = refused
    elseif refused then
      are_same = are_same and (seen_in == nil or seen_in == epoch)
      seen_in, lasts[i], seen, first_seen = seen_in or epoch, last, seen + 1, first_seen or last
    end
  end
  for i = 1, #frame.parts do
    if looked[i] then
      return looked[i]
    end
  end
  if seen_in then
    if late[1] or seen < #begun or not are_same then
      return 'past ' .. first_seen -- accepted before, in some of its regions
    end
    return 'seen ' .. seen_in .. ' ' .. table.concat(lasts, ' ')
  end
  if late[1] and not go_one_way(begun) then
    return 'stale ' .. node_epoch
  end
  local refused = unmet(frame)
  if refused then
    return refused
  end
  local lines, firsts, said = { frame.meta }, {}, ''
  for i, part in ipairs(frame.parts) do
    firsts[i] = part.first .. ' ' .. part.region
  end
  local of = frame.publisher .. '\n' .. frame.incarnation .. '\n' .. table.concat(firsts, '\n')
  for i, part in ipairs(frame.parts) do
    if not part.elsewhere then
      lasts[i] = accept(part)
      if late[1] and next(frame.names) then
        name_later(part, frame.names, of)
      elseif next(frame.names) then
        name_keys(part, frame.names)
      end
    end
    lines[i + 1] = part.region .. '\n' .. lasts[i] .. '\n' .. part.first
  end
  if late[1] and (next(frame.names) or next(frame.conditions)) then
    said = frame.text
  end
  if late[1] and next(frame.names) then
    note_passing(of, '', begun, frame)
  end
  local meta = table.concat(lines, '\n')
  for _, part in ipairs(frame.parts) do
    part.meta = meta
    part.stamp = part.elsewhere
  end
  pass_on_all(begun, late, said)
  return 'ok ' .. frame.epoch .. ' ' .. table.concat(lasts, ' ')
end

local outcomes = {}

-- What became of a frame of several regions that its publisher asks for.
local function outcome_of(frame)
  local answered = redis.call('HGET', prefix .. 'outcomes', frame.asks)
  local incarnation, size, said = string.match(answered or '', '^(%d+) (%d+)\n(.*)$')
  if incarnation and tonumber(incarnation) > tonumber(frame.incarnation) then
    return 'fenced ' .. incarnation
  end
  local forgotten = not incarnation and string.match(publishers[frame.region .. '\n'] or '', '^%d+')
  if forgotten and tonumber(frame.incarnation) <= tonumber(forgotten) then
    return 'forgotten ' .. forgotten
  end
  local is_it = incarnation == frame.incarnation and string.sub(said, 1, tonumber(size)) == frame.body
  return is_it and string.sub(said, size + 1) or 'landing'
end

-- Takes an undecided frame on: it is numbered in the regions that begin here, or refused. ``passing``: its parts that
-- have numbers, as far as they may pass.
local function land(frame, passing)
  local here, late, refused = {}, {}, frame.refused
  for _, part in ipairs(frame.parts) do
    if part.last == 0 then
      local is_here = part.stamp == name
      here[#here + 1], late[#late + 1] = is_here and part or nil, not is_here and part or nil
    end
  end
  if refused == '' then
    for _, part in ipairs(here) do
      local why, epoch, last = look(part)
      if why and refused == '' then
        refused = epoch and 'past ' .. last or why
      end
    end
    local all = {}
    for _, part in ipairs(passing) do
      all[#all + 1] = part
    end
    for _, part in ipairs(here) do
      all[#all + 1] = part
    end
    if late[1] and refused == '' and not go_one_way(all) then
      refused = 'stale ' .. node_epoch
    end
    if refused == '' and frame.keys then
      refused = unmet(frame.keys) or ''
    end
  end
  local begun = {}
  if refused ~= '' then
    frame.lines[1] = VOID .. string.match(frame.lines[1], ' .*$')
  else
    for _, part in ipairs(here) do
      frame.lines[frame.places[part.region] + 1] = accept(part)
      passing[#passing + 1], part.stamp = part, ''
      if frame.is_keyed and late[1] then
        name_later(part, frame.keys.names, frame.id)
      elseif frame.is_keyed then
        name_keys(part, frame.keys.names)
      end
    end
    begun = here
  end
  local meta = table.concat(frame.lines, '\n')
  for _, part in ipairs(frame.parts) do
    part.meta, part.body = meta, refused == '' and part.body or ''
  end
  if late[1] and not go_one_way(passing) then
    late = {}
  end
  if not late[1] then
    local lasts = {}
    for i = 2, #frame.lines, 3 do
      lasts[#lasts + 1] = frame.lines[i + 1]
    end
    lasts = table.concat(lasts, ' ')
    local answer = refused == '' and 'ok ' .. frame.epoch .. ' ' .. lasts or refused .. '\n' .. lasts
    outcomes[frame.outcome] = frame.which .. answer
    if frame.is_keyed then
      verdicts[frame.id] = source .. (refused == '' and '\nok' or '\nno')
    end
  elseif frame.is_keyed then
    note_passing(frame.id, source, begun, frame, passing)
  end
  local said = refused ~= '' and (frame.is_keyed and KEYED or '') .. refused or frame.said
  pass_on_all(passing, late, said)
end

local function publish(frame)
  if frame.asks then
    return outcome_of(frame)
  end
  if frame.parts and #frame.parts > 1 then
    return publish_in_all(frame)
  end
  return publish_alone(frame)
end

local function transfer()
  local incoming = 'i ' .. source
  local accepted = tonumber(counters[incoming] or 0)
  for _, frame in ipairs(frames) do
    if frame.sequence > accepted then
      if frame.sequence ~= accepted + 1 then
        return { 'gap', int(accepted) }
      end
      local parts = {}
      for _, part in ipairs(frame.parts) do
        local step = part.last > 0 and steps[part.step_field]
        if part.last > 0 and not step and tonumber(frame.epoch) > tonumber(node_epoch) then
          return { 'unknown', int(accepted) }
        end
        if step and step[1] ~= 'S' then
          parts[#parts + 1] = part
        end
      end
      if frame.lines then
        land(frame, parts)
      elseif #parts == 1 then
        pass_on(steps[parts[1].step_field], parts[1])
      else
        pass_on_all(parts)
      end
      accepted = tonumber(draw(incoming, 1))
    end
  end
  return { 'ok', int(accepted) }
end

local function resolve(of, judgement)
  local text = passing_of[of]
  if not text then
    return
  end
  passing_of[of] = nil
  local link, regions = read_where(text)
  for region in regions do
    resolve_in(region, of, judgement)
  end
  redis.call('HDEL', prefix .. 'undecided', of)
  if link ~= '' and not string.find(judgement, 'lost', 1, true) then
    verdicts[of] = link .. '\n' .. judgement
  end
end

local answer = {}
if source then
  answer = transfer()
elseif ARGV[1] == 'resolve' then
  for at = 2, #ARGV, 2 do
    resolve(ARGV[at], ARGV[at + 1])
  end
elseif ARGV[1] == 'close' then
  for i, frame in ipairs(frames) do
    answer[i] = close(frame.region, frame.epoch, frame.following)
  end
else
  for i, frame in ipairs(frames) do
    answer[i] = publish(frame)
  end
end
if not next(drawn) then
  -- Something is written in any case: who has lost an earlier answer may wait for copies (WAIT) on another connection.
  redis.pcall('HSET', counters_key, COPIED, '1') -- a full server answers all the same
end
write(counters_key, drawn)
write(publishers_key, accepted_of)
write(steps_key, reflagged)
write(prefix .. 'outcomes', outcomes)
write(prefix .. 'verdicts', verdicts)
if next(passed) then
  redis.call('HSET', node_key, 'pending', '1')
  write(prefix .. 'undecided', passed)
end
for region, state in pairs(tables) do
  write_heads(region, state)
end
return answer
