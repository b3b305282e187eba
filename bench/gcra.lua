-- GCRA with the arguments and the reply of CL.THROTTLE: KEYS[1], max_burst, count, period in seconds, quantity. The key holds
-- the theoretical arrival time (TAT) in microseconds, and expires when the quota is full again.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local emission = ARGV[3] * 1000000 / ARGV[2]
local limit = ARGV[1] + 1
local tolerance = emission * limit
local tat = math.max(tonumber(redis.call('GET', KEYS[1]) or now), now)
local after = tat + emission * ARGV[4]
if after - tolerance > now then
  local wait = math.ceil((after - tolerance - now) / 1000000)
  if tonumber(ARGV[4]) > limit then wait = -1 end
  return {1, limit, math.floor((now + tolerance - tat) / emission), wait, math.ceil((tat - now) / 1000000)}
end
redis.call('SET', KEYS[1], string.format('%.0f', after), 'PX', math.ceil((after - now) / 1000))
return {0, limit, math.floor((now + tolerance - after) / emission), -1, math.ceil((after - now) / 1000000)}
