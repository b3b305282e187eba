package migrate

import (
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// secondCounter makes in Go the calls of a Lua script in docs/migrate.md, which has a key for each
// second of the client's clock. A redis-server runs the script in TestScriptsOfThePage.
type secondCounter struct {
	rdb   *redis.Client
	limit int64
	now   func() int64 // ns
}

func (c secondCounter) admits(user string, quantity int64) bool {
	key := fmt.Sprint(user, ":", c.now()/int64(time.Second))
	used := c.rdb.IncrBy(ctx, key, quantity).Val()
	c.rdb.Expire(ctx, key, 2*time.Second)
	return used <= c.limit
}

// oldSecond has clients whose clocks each differ by skew from the next client's clock.
func oldSecond(skew time.Duration) oldWay {
	return func(rdb *redis.Client, now func() int64) asks {
		return func(c call) bool {
			its := func() int64 { return now() - int64(skew)*int64(c.client) }
			return secondCounter{rdb, 10, its}.admits("second", c.quantity)
		}
	}
}

const secondCommand = "CL.SLIDING user 10 1 N"

var secondWay = way{
	name: "second", command: secondCommand, head: headOf("1 s"),
	rows: []row{
		secondRow("5 a second, 10 s", every(200*time.Millisecond, 50), 0, 50, 50, 50, 50, 5, 5),
		secondRow("20 a second, 10 s", every(50*time.Millisecond, 200), 0, 200, 100, 91, 117, 10, 10),
		secondRow("10 just before a second ends, 10 just after it", aroundASecond(), 0, 20, 20, 10, 10, 20, 10),
		secondRow("quantities of 6, 6 and 4 at once", at(0, 6, 6, 4), 0, 3, 6, 10, 2, 6, 10),
		secondRow("20 at once, alternately from two clients whose clocks are 1 s apart", ofEach(2, at(0, ones(20)...)),
			time.Second, 20, 20, 10, 10, 20, 10),
	},
}

func aroundASecond() []call {
	return append(at(995*time.Millisecond, ones(10)...), at(1005*time.Millisecond, ones(10)...)...)
}

func secondRow(traffic string, calls []call, skew time.Duration, want ...int64) row {
	return row{traffic, compare(calls, time.Second, onCellserver(oldSecond(skew)), command(secondCommand)), want}
}
