package migrate

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// listBucket is a list that holds the tokens themselves.
type listBucket struct {
	rdb      *redis.Client
	capacity int64
}

// A timer calls refill, every 6 seconds.
func (b listBucket) refill(key string) {
	if b.rdb.LLen(ctx, key).Val() < b.capacity {
		b.rdb.LPush(ctx, key, "token")
	}
}

func (b listBucket) admits(key string, quantity int) bool {
	return len(b.rdb.RPopCount(ctx, key, quantity).Val()) == quantity
}

func (b listBucket) giveBack(key string) { b.rdb.LPush(ctx, key, "token") }

// oldList begins full, and has several timers. A negative quantity is a refund.
func oldList(timers int) oldWay {
	return func(rdb *redis.Client, now func() int64) asks {
		b, next := listBucket{rdb, 10}, now()+int64(6*time.Second)
		for range 10 {
			b.refill("list")
		}
		return func(c call) bool {
			for ; next <= now(); next += int64(6 * time.Second) {
				for range timers {
					b.refill("list")
				}
			}
			for range -c.quantity {
				b.giveBack("list")
			}
			return c.quantity <= 0 || b.admits("list", int(c.quantity))
		}
	}
}

const listCommand = "CL.THROTTLE user 9 10 60 N"

var listWay = way{
	name: "list", command: listCommand, head: headOf("60 s"),
	rows: []row{
		listRow("one a second, 5 minutes", every(time.Second, 300), 1, 300, 59, 59, 300, 19, 19),
		listRow("quantities of 8, 4 and 2 at once", at(0, 8, 4, 2), 1, 3, 8, 10, 2, 8, 10),
		listRow("nothing is taken, 3 are refunded; then 15 at once", append(at(0, -3), at(0, ones(15)...)...), 1, 16, 13,
			10, 13, 13, 10),
		listRow("the timer's process has stopped; one a second, 5 minutes", every(time.Second, 300), 0, 300, 10, 59, 251, 10,
			19),
		listRow("two processes have a timer each; one a second, 5 minutes", every(time.Second, 300), 2, 300, 108, 59, 251, 28,
			19),
	},
}

func listRow(traffic string, calls []call, timers int, want ...int64) row {
	return row{traffic, compare(calls, time.Minute, onModel(oldList(timers)), command(listCommand)), want}
}
