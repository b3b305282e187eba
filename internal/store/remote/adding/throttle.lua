-- Takes from a throttle key. ARGV has now, the TAT that a call may leave at most, and the emission interval, all in
-- nanoseconds; how long the key stays after its TAT, in milliseconds; and then for each group of equal calls the
-- quantity and the number of calls, 0 for one call that takes up to the quantity, or -n for what the call before takes
-- ahead: up to the quantity and an nth part of what remains, if it was allowed.
--
-- A number of Lua has 53 bits, and an instant in nanoseconds has 63. An instant is therefore two numbers, its seconds
-- and the nanoseconds of the second. Quantities are at most 1e6, so that no product of a quantity is too large.
--
-- Returns what the key held, or an array with it if the calls were not made. If there is a second key, which says whose
-- turn the key has, the calls are not made while it exists, and the array has its value, too.
local v = redis.pcall('GET', KEYS[1])
if type(v) == 'table' then return v end
if KEYS[2] then
  local turn = redis.pcall('GET', KEYS[2])
  if type(turn) == 'string' then return {v, turn} end
end

local function split(digits)
  local n = #digits - 9
  if n <= 0 then return 0, tonumber(digits) end
  return tonumber(string.sub(digits, 1, n)), tonumber(string.sub(digits, n + 1))
end

local s, ns = split(ARGV[1]) -- the TAT, or now if it has passed
if v then
  if #v > 19 or not string.find(v, '^[1-9]%d*$') or #v == 19 and v > '9223372036854775807' then return {v} end
  local ts, tns = split(v)
  if ts > s or ts == s and tns > ns then s, ns = ts, tns end
end
local most, mostns = split(ARGV[2])
local each, eachns = split(ARGV[3])

local function after(quantity) -- the TAT after a call, nil if it is not allowed
  local as, ans = s + quantity * each, ns + quantity * eachns
  local carry = math.floor(ans / 1e9)
  as, ans = as + carry, ans - carry * 1e9
  if as < most or as == most and ans <= mostns then return as, ans end
end

local function room(wanted) -- the largest quantity up to the wanted one that is allowed
  local free = ((most - s) * 1e9 + mostns - ns) / (each * 1e9 + eachns)
  local quantity = math.min(wanted, math.max(math.floor(free) + 1, 0))
  while quantity > 0 and not after(quantity) do quantity = quantity - 1 end -- twice at most
  return quantity
end

local changed, allowed = false, false
for i = 5, #ARGV, 2 do
  local quantity, calls = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
  if calls == 0 then
    quantity = room(quantity)
  elseif calls < 0 then
    quantity = allowed and math.floor(room(-calls * (quantity + 1) - 1) / -calls) or 0
  end
  if calls <= 0 then calls = math.min(quantity, 1) end
  for _ = 1, calls do
    local as, ans = after(quantity)
    allowed = as ~= nil
    if not as then break end
    s, ns, changed = as, ans, true
  end
end
if changed then
  local ms = s * 1000 + math.ceil(ns / 1e6) + ARGV[4]
  local tat = s > 0 and string.format('%d%09d', s, ns) or string.format('%d', ns)
  local r = redis.pcall('SET', KEYS[1], tat, 'PXAT', string.format('%d', ms))
  if r.err then return r end
end
return v
