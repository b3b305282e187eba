-- Takes from a key with a fixed window (f), a sliding window counter (s) or a calendar quota (q), in the forms of
-- package form. ARGV has the mark of the form; now, the limit, and the period or, of a quota, the end of the present
-- window, in 8 bytes each; how long the key stays after the end of its state, in milliseconds; the windows of a quota
-- as in its form; and then for each group of equal calls the quantity and the number of calls, 0 for one call that
-- takes up to the quantity, or -n for what the call before takes ahead: up to the quantity and an nth of what remains,
-- if it was allowed.
--
-- A number of Lua has 53 bits, and those of a form have 63. A number n is therefore a table of three digits of 21 bits,
-- the lowest first, of which a product has six. Quantities are at most 1e6, which is one digit.
--
-- Returns what the key held, or an array with it if the calls were not made. If there is a second key, which says whose
-- turn the key has, the calls are not made while it exists, and the array has its value, too.
local v = redis.pcall('GET', KEYS[1])
if type(v) == 'table' then return v end
if KEYS[2] then
  local turn = redis.pcall('GET', KEYS[2])
  if type(turn) == 'string' then return {v, turn} end
end

local floor, byte, char, sub = math.floor, string.byte, string.char, string.sub
local digit = 2097152

local function read(s, i)
  local a, b, c, d, e, f, g, h = byte(s, i, i + 7)
  if not h or a > 127 then return nil end
  return {f % 32 * 65536 + g * 256 + h, c % 4 * 524288 + d * 2048 + e * 8 + floor(f / 32),
    a * 16384 + b * 64 + floor(c / 4)}
end

local function write(n)
  local l, m, h = n[1], n[2], n[3]
  return char(floor(h / 16384), floor(h / 64) % 256, h % 64 * 4 + floor(m / 524288), floor(m / 2048) % 256,
    floor(m / 8) % 256, m % 8 * 32 + floor(l / 65536), floor(l / 256) % 256, l % 256)
end

local function readCount(s, i)
  local n, factor = {0, 0, 0}, 1
  for k = 0, 8 do
    local b = byte(s, i + k)
    if not b then return nil end
    local at = floor(k / 3) + 1
    n[at] = n[at] + b % 128 * factor
    if b < 128 then return n, i + k + 1 end
    factor = factor == 16384 and 1 or factor * 128
  end
  return nil
end

local function writeCount(n)
  local s, rest = '', n[1]
  for k = 1, 9 do
    local low = rest % 128
    rest = floor(rest / 128)
    if k % 3 == 0 and k < 9 then rest = n[k / 3 + 1] end
    local last = rest == 0 and (k > 6 or n[3] == 0) and (k > 3 or n[2] == 0)
    s = s .. char(last and low or low + 128)
    if last then return s end
  end
  return s
end

local function add(a, b)
  local l, m, h = a[1] + b[1], a[2] + b[2], a[3] + b[3]
  if l >= digit then l, m = l - digit, m + 1 end
  if m >= digit then m, h = m - digit, h + 1 end
  return {l, m, h}
end

local function minus(a, b) -- a is not less than b
  local l, m, h = a[1] - b[1], a[2] - b[2], a[3] - b[3]
  if l < 0 then l, m = l + digit, m - 1 end
  if m < 0 then m, h = m + digit, h - 1 end
  return {l, m, h}
end

local function less(a, b)
  for i = #a, 1, -1 do
    if a[i] ~= b[i] then return a[i] < b[i] end
  end
  return false
end

local function times(a, b)
  local p = {0, 0, 0, 0, 0, 0}
  for i = 1, 3 do
    for j = 1, 3 do p[i + j - 1] = p[i + j - 1] + a[i] * b[j] end
  end
  for i = 1, 5 do
    local carry = floor(p[i] / digit)
    p[i], p[i + 1] = p[i] - carry * digit, p[i + 1] + carry
  end
  return p
end

local function isZero(n) return n[1] == 0 and n[2] == 0 and n[3] == 0 end

local mark, kind = ARGV[1], sub(ARGV[1], 5)
local now, size, period = read(ARGV[2], 1), read(ARGV[2], 9), read(ARGV[2], 17)
local zero = {0, 0, 0}
local latest = 1600000 -- the third digit of an instant in 2192: instants up to then do not overflow

-- A quota ends at the end, and has a count. The others have a start, counts, and a duration.
local start, previous, used, duration, until_ = now, zero, zero, zero, zero
local ends, cycle = now, ARGV[4]
local function form()
  if kind == 'q' then return mark .. write(ends) .. writeCount(used) .. cycle end
  local counts = kind == 's' and writeCount(previous) .. writeCount(used) or writeCount(used)
  return mark .. write(start) .. counts .. writeCount(duration) .. (kind == 's' and write(until_) or '')
end

if v then
  if sub(v, 1, 5) ~= mark then return {v} end
  local i = 14
  start = read(v, 6)
  if not start or start[3] > latest then return {v} end
  if kind == 's' then
    previous, i = readCount(v, i)
    if not previous then return {v} end
  end
  used, i = readCount(v, i)
  if not used then return {v} end
  if kind == 'q' then
    ends, cycle = start, sub(v, i)
  else
    duration, i = readCount(v, i)
    if not duration then return {v} end
    ends = add(start, duration)
    if kind == 's' then until_ = read(v, i) end
  end
  local invalid = isZero(used) and isZero(previous) or kind ~= 'q' and isZero(duration)
    or kind == 's' and not isZero(used) and duration[1] % 2 == 1
  if invalid or not until_ or ends[3] > latest or until_[3] > latest or form() ~= v then return {v} end
  local lives = less(now, ends)
  if kind == 'q' and (cycle ~= ARGV[4] or less(ends, period) or less(period, ends)) then return {v} end
  if lives and kind == 's' then
    local stored = isZero(used) and period or add(period, period)
    if less(duration, stored) or less(stored, duration) then return {v} end -- the calls have another period
    local next = add(start, period)
    if not less(now, next) then
      start, previous, used = next, used, zero
      lives = not isZero(previous) and less(now, add(next, period))
    end
  end
  if not lives then
    start, previous, used, until_, ends = now, zero, zero, zero, now
  end
elseif kind == 'q' then
  ends = period
end

local function allows(after) -- the count after a call
  if less(size, after) then return false end
  if kind ~= 's' or isZero(previous) then return true end
  local inView, next = period, add(start, period)
  if less(start, now) then inView = minus(next, now) end
  return not less(times(minus(size, after), period), times(previous, inView))
end

local changed, allowed = false, false
for i = 5, #ARGV, 2 do
  local quantity, calls = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
  if calls <= 0 then
    local room = less(used, size) and minus(size, used) or zero
    if calls < 0 and not allowed then room = zero end
    if room[2] == 0 and room[3] == 0 then quantity = math.min(quantity, floor(room[1] / math.max(-calls, 1))) end
    calls = math.min(quantity, 1)
  end
  for _ = 1, calls do
    local after = add(used, {quantity, 0, 0})
    allowed = allows(after)
    if not allowed then break end
    used, changed = after, true
  end
end
if changed then
  if kind == 'f' then
    local e = add(start, period)
    if less(ends, e) then ends = e end
    duration = minus(ends, start)
  elseif kind == 's' then
    duration = add(period, period)
    ends = add(start, duration)
    local e = add(now, period)
    if less(until_, e) then until_ = e end
  end
  local ms = floor(((ends[3] * digit + ends[2]) * digit + ends[1]) / 1e6) + 1 + ARGV[3]
  local r = redis.pcall('SET', KEYS[1], form(), 'PXAT', string.format('%d', ms))
  if r.err then return r end
end
return v
