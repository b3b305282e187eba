package migrate

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// spacing is a leaky bucket of one: the key has the time of the next allowed call.
type spacing struct {
	rdb      *redis.Client
	interval time.Duration
	now      func() int64 // ns
}

func (s spacing) admits(key string) bool {
	if next, _ := s.rdb.Get(ctx, key).Int64(); s.now() < next {
		return false
	}
	s.rdb.Set(ctx, key, s.now()+int64(s.interval), 0)
	return true
}

// admitsNX is the correct way: the key exists for as long as no call is allowed.
func (s spacing) admitsNX(key string) bool { return s.rdb.SetNX(ctx, key, 1, s.interval).Val() }

func newSpacing(rdb *redis.Client, now func() int64) spacing {
	return spacing{rdb, 100 * time.Millisecond, now}
}

// oldSpacing has clients whose clocks are each ahead of the previous client's clock by skew.
func oldSpacing(skew time.Duration) oldWay {
	return func(rdb *redis.Client, now func() int64) asks {
		return func(c call) bool {
			its := func() int64 { return now() + int64(skew)*int64(c.client) }
			return newSpacing(rdb, its).admits("spacing")
		}
	}
}

func oldSpacingNX(rdb *redis.Client, now func() int64) asks {
	return func(call) bool { return newSpacing(rdb, now).admitsNX("spacing:nx") }
}

const spacingCommand = "CL.THROTTLE user 0 10 1 N"

var spacingWay = way{
	name: "spacing", command: spacingCommand, head: "calls | `GET`, `SET` admits | `SET NX PX` admits | new admits",
	rows: []row{
		spacingRow("one every 100 ms, 10 s", every(100*time.Millisecond, 100), 0, 100, 100, 100, 100),
		spacingRow("one every 30 ms, 10.2 s", every(30*time.Millisecond, 340), 0, 340, 85, 85, 85),
		{"two, interleaved", twoIntoTheGap, []int64{2, 2, 1, 1}},
		spacingRow("one from a client whose clock is 10 s ahead; then one every 100 ms, 10 s", afterOneFromTheFuture(),
			10*time.Second, 101, 1, 101, 101),
	},
}

// spacingRow compares three ways, by how many calls each admits.
func spacingRow(traffic string, calls []call, skew time.Duration, want ...int64) row {
	return row{traffic, func(p *place) []int64 {
		sides := []asks{onCellserver(oldSpacing(skew))(p), onCellserver(oldSpacingNX)(p), command(spacingCommand)(p)}
		numbers := []int64{int64(len(calls)), 0, 0, 0}
		for _, c := range calls {
			p.at(c.at)
			for i, admits := range sides {
				if admits(c) {
					numbers[i+1]++
				}
			}
		}
		return numbers
	}, want}
}

func afterOneFromTheFuture() []call {
	first := call{quantity: 1, client: 1}
	return append([]call{first}, after(100*time.Millisecond, every(100*time.Millisecond, 100))...)
}

// twoIntoTheGap makes another client call between GET and SET; the other ways have no such gap.
func twoIntoTheGap(p *place) []int64 {
	first, second, new := newSpacing(p.cellserver(), p.clock.Now), newSpacing(p.cellserver(), p.clock.Now),
		command(spacingCommand)(p)
	var other bool
	before(first.rdb, "set", func() { other = second.admits("spacing") })
	return []int64{2,
		number01(first.admits("spacing")) + number01(other),
		number01(first.admitsNX("spacing:nx")) + number01(second.admitsNX("spacing:nx")),
		number01(new(p.asked())) + number01(new(p.asked())),
	}
}
