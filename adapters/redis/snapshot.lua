-- The keys of regions as of one moment, with their values: the twin of snapshots in sequencing/node.py.
--
-- KEYS: node, steps, counters. ARGV: region, epoch for each.
-- Answers for each: nothing where its open ingress is not here; else the number of its last event, the epoch that began
-- with a loss of the heads or '0', the heads, the values. They are not decoded here: that would take the server longer.

local node_key, steps_key, counters_key = KEYS[1], KEYS[2], KEYS[3]
local prefix = string.sub(node_key, 1, -5)
local any_epoch = redis.call('HGET', node_key, 'any')

local found = {}
for at = 1, #ARGV, 2 do
  local region, field = ARGV[at], ARGV[at + 1] .. ' ' .. ARGV[at]
  local step = redis.call('HGET', steps_key, field)
  if step and string.sub(step, 1, 4) == '["I"' or not step and any_epoch == ARGV[at + 1] then
    local keyed = redis.call('HGET', prefix .. 'keyed', region)
    found[#found + 1] = {
      redis.call('HGET', counters_key, 'r ' .. field) or '0',
      string.match(keyed or '', '^%d+') or '0',
      redis.call('HGETALL', prefix .. 'heads:' .. region),
      redis.call('HGETALL', prefix .. 'values:' .. region),
    }
  else
    found[#found + 1] = {}
  end
end
return found
