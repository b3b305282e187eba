package backend

import (
	"cellserver/internal/store/remote/adding"
)

// compareAndSet compares all keys with what they are known to hold, and changes them if all do. It
// returns 1, or an array of what the keys hold. Each key has five arguments: how it is compared, what
// it is compared with, the new value, the new expiry, and the expiry that it is compared with.
//
//	how     "": the key must be absent; "=": its value must be equal; n: its first n bytes must be equal
//	expiry  "": none; "k": it stays; "-": the key is not changed; "d": it is removed; else an instant in ms
//	before  "": it is not compared; else an instant in ms, -1 for none
//
// Without PEXPIRETIME, which is in Redis since 7.0, an expiry is compared to 2 ms.
//
// A command that fails ends the script with its error. Only the first change can fail, because after
// it the server does not check any more whether there is enough memory, so all is changed or nothing.
const compareAndSet = `local same = true
for i = 1, #KEYS do
  local how, known, before = ARGV[5*i-4], ARGV[5*i-3], ARGV[5*i]
  local v
  if how == '' or how == '=' then
    v = redis.pcall('GET', KEYS[i])
  else
    v = redis.pcall('GETRANGE', KEYS[i], 0, how - 1)
  end
  if type(v) == 'table' then return v end
  if how == '' then known = false end
  if v ~= known then same = false break end
  if before ~= '' then
    local at, off = redis.pcall('PEXPIRETIME', KEYS[i]), 0
    if type(at) == 'table' then
      at, off = redis.call('PTTL', KEYS[i]), 2
      if at >= 0 then
        local t = redis.call('TIME')
        at = at + t[1] * 1000 + math.floor(t[2] / 1000)
      end
    end
    if math.abs(at - before) > off then same = false break end
  end
end
if not same then
  local held = {}
  for i = 1, #KEYS do
    local v = redis.pcall('GET', KEYS[i])
    if type(v) == 'table' then return v end
    held[i] = v
  end
  return held
end
for i = 1, #KEYS do
  local expiry, r = ARGV[5*i-1], false
  if expiry == '' then
    r = redis.pcall('SET', KEYS[i], ARGV[5*i-2])
  elseif expiry == 'k' then
    r = redis.pcall('SET', KEYS[i], ARGV[5*i-2], 'KEEPTTL')
  elseif expiry == 'd' then
    r = redis.pcall('DEL', KEYS[i])
  elseif expiry ~= '-' then
    r = redis.pcall('SET', KEYS[i], ARGV[5*i-2], 'PXAT', expiry)
  end
  if type(r) == 'table' and r.err then return r end
end
return 1`

// compareAndSetOne is a shorter script for steps of limiters, the most frequent steps: one key, whose
// whole value is compared, gets a value and an expiry. Its arguments are the value, the expiry, and what
// the key is known to hold, which is missing if the key must be absent. It returns the reply of SET, or
// an array of what the key holds.
const compareAndSetOne = `local v = redis.pcall('GET', KEYS[1])
if v == (ARGV[3] or false) then
  return redis.pcall('SET', KEYS[1], ARGV[1], 'PXAT', ARGV[2])
end
if type(v) == 'table' then return v end
return {v}`

// readAll returns two elements for each key: its value, or nil, and its expiry, if the argument of
// the key is 1: an instant in milliseconds, -1 if there is none. PEXPIRETIME is in Redis since 7.0.
const readAll = `local held = {}
for i = 1, #KEYS do
  local v, at = redis.pcall('GET', KEYS[i]), -1
  if type(v) == 'table' then return v end
  if v and ARGV[i] == '1' then
    at = redis.pcall('PEXPIRETIME', KEYS[i])
    if type(at) == 'table' then
      at = redis.call('PTTL', KEYS[i])
      if at >= 0 then
        local t = redis.call('TIME')
        at = at + t[1] * 1000 + math.floor(t[2] / 1000)
      end
    end
  end
  held[2*i-1], held[2*i] = v, at
end
return held`

// scripts are loaded together, by SCRIPT LOAD, on a server that does not know one of them.
var scripts = append([]string{compareAndSet, compareAndSetOne, readAll}, adding.Scripts...)

var (
	compareAndSetDigest    = adding.Digest(compareAndSet)
	compareAndSetOneDigest = adding.Digest(compareAndSetOne)
	readAllDigest          = adding.Digest(readAll)
)
