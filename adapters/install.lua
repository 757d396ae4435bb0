-- Install the steps of a plan at a node: the twin of Node.install in sequencing/node.py.
--
-- KEYS: node, steps, counters.
-- ARGV: epoch, version, retention, then region, step for each region.

local epoch, version = tonumber(ARGV[1]), tonumber(ARGV[2])
local node = redis.call('HMGET', KEYS[1], 'epoch', 'version')
local node_epoch, node_version = tonumber(node[1] or '0'), tonumber(node[2] or '0')
if epoch < node_epoch or (epoch == node_epoch and version < node_version) then
  return 0
end
if epoch > node_epoch then
  local steps = redis.call('HGETALL', KEYS[2])
  for i = 1, #steps, 2 do
    local field, step = steps[i], cjson.decode(steps[i + 1])
    if tonumber(string.match(field, '^%d+')) < epoch - 1 then
      redis.call('HDEL', KEYS[2], field)
      redis.call('HDEL', KEYS[3], 'r ' .. field)
      for atom = 3, #step do
        redis.call('HDEL', KEYS[3], step[atom])
      end
    else
      step[1] = 'T'
      redis.call('HSET', KEYS[2], field, cjson.encode(step))
    end
  end
end
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'version', ARGV[2], 'retention', ARGV[3])
for at = 4, #ARGV, 2 do
  redis.call('HSET', KEYS[2], ARGV[1] .. ' ' .. ARGV[at], ARGV[at + 1])
end
return 1
