package migrate

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
)

// counter is a key that counts down what is left of a limit, and expires.
type counter struct {
	rdb    *redis.Client
	limit  int64
	period time.Duration
}

func (c counter) admits(key string) bool {
	if c.rdb.Exists(ctx, key).Val() == 0 {
		c.rdb.Do(ctx, "SETEX", key, c.period.Seconds(), c.limit)
	}
	if left, _ := c.rdb.Get(ctx, key).Int64(); left <= 0 {
		return false
	}
	c.rdb.IncrBy(ctx, key, -1)
	return true
}

// incrCounter counts up. The first call of a window sets its end.
type incrCounter struct {
	rdb    *redis.Client
	limit  int64
	period time.Duration
}

func (c incrCounter) admits(key string) bool {
	used := c.rdb.Incr(ctx, key).Val()
	if used == 1 {
		c.rdb.Expire(ctx, key, c.period)
	}
	return used <= c.limit
}

func newIncr(rdb *redis.Client) incrCounter { return incrCounter{rdb, 20, time.Minute} }

func oldIncr(rdb *redis.Client, _ func() int64) asks {
	return func(call) bool { return newIncr(rdb).admits("incr") }
}

func newCounter(rdb *redis.Client) counter { return counter{rdb, 20, time.Minute} }

func oldCounter(rdb *redis.Client, _ func() int64) asks {
	return func(call) bool { return newCounter(rdb).admits("counter") }
}

const counterCommand = "CL.FIXED user 20 60 N"

var counterWay = way{
	name: "counter", command: counterCommand, head: headOf("60 s"),
	rows: []row{
		counterRow("one a second, 3 minutes", every(time.Second, 180), 180, 60, 60, 180, 20, 20),
		counterRow("1; 19 just before the minute ends; 20 just after it", aroundAMinute(), 40, 40, 40, 40, 39, 39),
		{"the 20th and the 21st, interleaved", twoForTheLast, []int64{21, 21, 20, 20, 21, 20}},
		{"the key expires between `GET` and `INCRBY`; then one a second, 10 minutes", expiresMeanwhile,
			[]int64{602, 2, 201, 403, 2, 20}},
		{"`INCR`: one a second, 3 minutes",
			compare(every(time.Second, 180), time.Minute, onCellserver(oldIncr), command(counterCommand)),
			[]int64{180, 60, 60, 180, 20, 20}},
		{"`INCR`: a client crashes before its `EXPIRE`; then one a second, 10 minutes", crashesBeforeExpire,
			[]int64{601, 19, 200, 420, 19, 20}},
	},
}

func counterRow(traffic string, calls []call, want ...int64) row {
	return row{traffic, compare(calls, time.Minute, onCellserver(oldCounter), command(counterCommand)), want}
}

func aroundAMinute() []call {
	return append(append(at(0, 1), at(59900*time.Millisecond, ones(19)...)...), at(time.Minute, ones(20)...)...)
}

// twoForTheLast makes a second client call when the first client has read that one token is left.
func twoForTheLast(p *place) []int64 {
	t, first, second, new := newTally(time.Minute), newCounter(p.cellserver()), newCounter(p.cellserver()),
		command(counterCommand)(p)
	for range 19 {
		t.add(p.asked(), first.admits("counter"), new(p.asked()))
	}
	var other bool
	before(first.rdb, "incrby", func() { other = second.admits("counter") })
	t.add(p.asked(), first.admits("counter"), new(p.asked()))
	t.add(p.asked(), other, new(p.asked()))
	return t.numbers()
}

// expiresMeanwhile lets the key expire when a client has read that some tokens are left: INCRBY
// creates it again, as -1, without an expiry.
func expiresMeanwhile(p *place) []int64 {
	t, c, new := newTally(time.Minute), newCounter(p.cellserver()), command(counterCommand)(p)
	t.add(p.asked(), c.admits("counter"), new(p.asked()))
	p.at(time.Minute - time.Millisecond)
	before(c.rdb, "incrby", func() { p.at(time.Minute) })
	t.add(p.asked(), c.admits("counter"), new(p.asked()))
	for range 600 {
		t.add(p.asked(), c.admits("counter"), new(p.asked()))
		p.at(p.elapsed() + time.Second)
	}
	return t.numbers()
}

func crashesBeforeExpire(p *place) []int64 {
	t, c, new := newTally(time.Minute), newIncr(p.cellserver()), command(counterCommand)(p)
	another := newIncr(p.cellserver())
	before(c.rdb, "expire", crash)
	crashes(func() { c.admits("incr") })
	t.add(p.asked(), false, new(p.asked()))
	for range 600 {
		t.add(p.asked(), another.admits("incr"), new(p.asked()))
		p.at(p.elapsed() + time.Second)
	}
	return t.numbers()
}

// The key of expiresMeanwhile refuses all clients until it is deleted.
func TestACounterThatNeverExpires(t *testing.T) {
	p := newPlace(t)
	expiresMeanwhile(p)
	rdb := p.cellserver()
	assert.Equal(t, "-1", rdb.Get(ctx, "counter").Val())
	assert.EqualValues(t, -1, rdb.TTL(ctx, "counter").Val(), "no expiry")
	p.at(365 * 24 * time.Hour)
	assert.False(t, newCounter(rdb).admits("counter"))

	p = newPlace(t)
	crashesBeforeExpire(p)
	p.at(365 * 24 * time.Hour)
	assert.False(t, newIncr(p.cellserver()).admits("incr"))
}
