-- What managers and connections tell each other: wishes, the record of what is so, and who leads.
--
-- KEYS: record, wishes, published, lease, news, asked.
-- ARGV: 'want', name, incarnation, said, wish as JSON, then regions that events are to be published to
--    or 'look' or 'renew', token, lease in ms
--    or 'save', token, record as JSON
--    or 'announce', token, epoch, version, record as JSON
--    or 'resign', token.
--
-- A leader is fenced by its token: whoever has lost the lease can neither save nor announce.

local record, wishes, published, lease, news, asked = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local verb = ARGV[1]

local function earlier(before, incarnation, said)
  local wish = cjson.decode(before)
  return wish[1] < incarnation or (wish[1] == incarnation and wish[2] < said)
end

local function announced()
  local newest = redis.call('XREVRANGE', news, '+', '-', 'COUNT', 1)[1]
  return newest and newest[1] or '0-0'
end

local function follows(epoch, version)
  local last_epoch, last_version = string.match(announced(), '^(%d+)-(%d+)$')
  last_epoch, last_version = tonumber(last_epoch), tonumber(last_version)
  return epoch > last_epoch or (epoch == last_epoch and version > last_version)
end

if verb == 'want' then
  local before = redis.call('HGET', wishes, ARGV[2])
  local news_of_it = not before or earlier(before, tonumber(ARGV[3]), tonumber(ARGV[4]))
  if news_of_it then
    redis.call('HSET', wishes, ARGV[2], ARGV[5])
  end
  local added = #ARGV > 5 and redis.call('SADD', published, unpack(ARGV, 6)) or 0
  if news_of_it or added > 0 then
    redis.call('XADD', asked, 'MAXLEN', '=', 1, '*', 'by', ARGV[2])
    return 1
  end
  return 0
end

local token = ARGV[2]
local leader = redis.call('GET', lease)

if verb == 'look' or verb == 'renew' then
  local leads = not leader or leader == token
  if leads then
    redis.call('SET', lease, token, 'PX', ARGV[3])
  end
  if verb == 'renew' then
    return leads and 1 or 0
  elseif not leads then
    return { 0 }
  end
  local newest = redis.call('XREVRANGE', asked, '+', '-', 'COUNT', 1)[1]
  return {
    1, redis.call('GET', record) or '', redis.call('HGETALL', wishes), redis.call('SMEMBERS', published),
    announced(), newest and newest[1] or '0-0',
  }
end

if leader ~= token then
  return 0
end
if verb == 'save' then
  redis.call('SET', record, ARGV[3])
elseif verb == 'announce' then
  if follows(tonumber(ARGV[3]), tonumber(ARGV[4])) then
    redis.call('XADD', news, ARGV[3] .. '-' .. ARGV[4], 'record', ARGV[5])
  end
else
  redis.call('DEL', lease)
end
return 1
