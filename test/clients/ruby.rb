# Plays the scenario with redis-rb.
require "redis"

LIMIT = [15, 30, 60, 1]
$stdout.sync = true

def ok(*feature) = puts("ok #{feature.join(" ")}")
def same(want, got) = want == got || abort("got #{got.inspect}, want #{want.inspect}")
def connect(db) = Redis.new(port: ENV["PORT"].to_i, db: db)

def refused
  "answered #{yield}"
rescue Redis::CommandError => e
  e.message
end

puts "client redis-rb #{Redis::VERSION}"
redis = connect(0)
throttle = -> { redis.call("CL.THROTTLE", "user123", *LIMIT) }
same [0, 16, 15, -1, 2], throttle.call
ok "throttle call"

same 1, redis.incr("n")
same 2, redis.incr("n")
same true, redis.expire("n", 100)
same true, (51..100).cover?(redis.ttl("n"))
ok "counters"

replies = redis.pipelined { |pipe| 10.times { pipe.call("CL.THROTTLE", "pipe", 99, 1, 1000, 1) } }
same (0..9).map { |i| [0, 100, 99 - i] }, replies.map { |reply| reply.first(3) }
ok "pipeline"

replies = redis.multi do |tx|
  tx.incr("n")
  tx.call("CL.THROTTLE", "tx", *LIMIT)
end
same [3, [0, 16, 15, -1, 2]], replies
ok "transaction"

same "WRONGTYPE", refused { redis.incr("pipe") }.split.first
same "ERR value is not an integer or out of range: period (units are ms, s, m, h and d)", refused { redis.call("CL.THROTTLE", "k", 15, 30, "x") }
ok "errors"

two = connect(2)
same false, two.exists?("n")
same 1, two.incr("n")
same "3", redis.get("n")
two.close
ok "database"

puts "restart"
$stdin.gets
failed = 0
begin
  same [0, 16, 15, -1, 2], throttle.call
rescue Redis::BaseConnectionError
  abort "the client does not connect again" if (failed += 1) > 100
  sleep 0.05
  retry
end
ok "restart", *("after an error" if failed > 0)
