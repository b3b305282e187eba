package migrate

import (
	"math"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// permits does in Go, line by line, what a Lua script in docs/migrate.md does: it keeps a token
// bucket in a hash, and gets the milliseconds of the client's clock. A redis-server runs the script
// in TestScriptsOfThePage.
type permits struct {
	rdb     *redis.Client
	rate    float64 // a second
	most    float64
	clockMS func() int64
}

func (b permits) admits(key string, wanted int64) bool {
	now := float64(b.clockMS())
	stored := b.rdb.HMGet(ctx, key, "last", "left").Val()
	last, left := or(stored[0], now), or(stored[1], b.most)
	back := math.Floor((now - last) / 1000 * b.rate)
	if stored[0] == nil || back > 0 {
		b.rdb.HSet(ctx, key, "last", now)
	}
	left = min(b.most, left+back)
	ok := left >= float64(wanted)
	if ok {
		left -= float64(wanted)
	}
	b.rdb.HSet(ctx, key, "left", left)
	return ok
}

// or returns a field as a number, or the other value if the field does not exist.
func or(field any, other float64) float64 {
	text, there := field.(string)
	if !there {
		return other
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// oldPermits has clients whose clocks each differ by skew from the next client's clock.
func oldPermits(skew time.Duration) oldWay {
	return func(rdb *redis.Client, now func() int64) asks {
		return func(c call) bool {
			clockMS := func() int64 { return (now() - int64(skew)*int64(c.client)) / int64(time.Millisecond) }
			return permits{rdb, 10, 10, clockMS}.admits("permits", c.quantity)
		}
	}
}

const permitsCommand = "CL.THROTTLE user 9 10 1 N"

var permitsWay = way{
	name: "permits", command: permitsCommand, head: headOf("1 s"),
	rows: []row{
		permitsRow("12 at once, then one every 100 ms, 20 s", burstAndRate(), 0, 212, 210, 210, 212, 19, 19),
		permitsRow("one every 50 ms, 20 s", every(50*time.Millisecond, 400), 0, 400, 209, 209, 400, 19, 19),
		permitsRow("2 every 190 ms, 19 s", twosIn190ms(), 0, 100, 108, 198, 55, 12, 12),
		permitsRow("one every 500 ms from each of two clients whose clocks are 2 s apart, 20 s",
			ofEach(2, every(250*time.Millisecond, 80)), 2*time.Second,
			80, 1, 80, 1, 1, 4),
	},
}

func burstAndRate() []call {
	return append(at(0, ones(12)...), after(100*time.Millisecond, every(100*time.Millisecond, 200))...)
}

func twosIn190ms() []call {
	calls := every(190*time.Millisecond, 100)
	for i := range calls {
		calls[i].quantity = 2
	}
	return calls
}

func permitsRow(traffic string, calls []call, skew time.Duration, want ...int64) row {
	return row{traffic, compare(calls, time.Second, onModel(oldPermits(skew)), command(permitsCommand)), want}
}
