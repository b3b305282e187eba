package migrate

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
)

// funnel is a leaky bucket as an object: the rest of its capacity, and the time at which it was
// computed.
type funnel struct {
	capacity, perSecond float64
	Left                float64 `redis:"left"`
	At                  int64   `redis:"at"` // ns
}

func (f *funnel) admits(now int64) bool {
	f.Left = min(f.capacity, f.Left+float64(now-f.At)/1e9*f.perSecond)
	f.At = now
	if f.Left < 1 {
		return false
	}
	f.Left--
	return true
}

// full returns a new funnel.
func full(capacity, perSecond float64) funnel {
	return funnel{capacity: capacity, perSecond: perSecond, Left: capacity}
}

// oldFunnel is the side of several processes, each with a funnel of its own.
func oldFunnel(processes int, capacity, perSecond float64) side {
	return func(p *place) asks {
		funnels := make([]funnel, processes)
		for i := range funnels {
			funnels[i] = full(capacity, perSecond)
		}
		return func(c call) bool { return funnels[c.client].admits(p.clock.Now()) }
	}
}

const funnelCommand = "CL.THROTTLE user 14 30 60 N"

var funnelWay = way{
	name: "funnel", command: funnelCommand, head: headOf("60 s"),
	rows: []row{
		funnelRow("one a second, 5 minutes, from one process", every(time.Second, 300), 1, 300, 164, 164, 300, 44, 44),
		funnelRow("one a second, 5 minutes, alternately from two processes", every(time.Second, 300), 2, 300, 300, 164, 164,
			60, 44),
		funnelRow("15 at once; the process restarts; 15 at once", ofEach(2, at(0, ones(30)...)), 2, 30, 30, 15, 15, 30,
			15),
		{"one every 10 ms, 60 s, from one process, where one every 100 ms is allowed (`CL.THROTTLE user 0 10 1`)",
			compare(every(10*time.Millisecond, 6000), time.Minute, oldFunnel(1, 1, 10), command("CL.THROTTLE user 0 10 1 N")),
			[]int64{6000, 546, 600, 4964, 546, 600}},
	},
}

func funnelRow(traffic string, calls []call, processes int, want ...int64) row {
	return row{traffic, compare(ofEach(processes, calls), time.Minute, oldFunnel(processes, 15, 0.5),
		command(funnelCommand)), want}
}

// hashFunnel is a funnel in a hash, which processes share under a lock.
type hashFunnel struct {
	rdb  *redis.Client
	full funnel
	now  func() int64 // ns
}

func (h hashFunnel) admits(key string) bool {
	if !h.rdb.SetNX(ctx, key+":lock", 1, 5*time.Second).Val() {
		return false // another client holds the lock
	}
	f := h.full
	f.At = h.now()
	_ = h.rdb.HGetAll(ctx, key).Scan(&f) // a new key has nothing to scan
	ok := f.admits(h.now())
	h.rdb.HSet(ctx, key, "left", f.Left, "at", f.At)
	h.rdb.Del(ctx, key+":lock")
	return ok
}

func oldHash(rdb *redis.Client, now func() int64) asks {
	return func(call) bool { return hashFunnel{rdb, full(15, 0.5), now}.admits("hash") }
}

const lockCommand = funnelCommand

var lockWay = way{
	name: "lock", command: lockCommand, head: headOf("60 s"),
	rows: []row{
		{"one a second, 5 minutes", compare(every(time.Second, 300), time.Minute, onModel(oldHash), command(lockCommand)),
			[]int64{300, 164, 164, 300, 44, 44}},
		{"two, interleaved", twoAtOnce, []int64{2, 1, 2, 1, 1, 2}},
		{"a client crashes while it holds the lock; then 15 at once; after 5 s, 15 at once", crashesWithTheLock,
			[]int64{31, 15, 17, 3, 15, 17}},
		{"a client is delayed for 6 s, then another calls, where one a minute is allowed (`CL.THROTTLE user 0 1 60`)",
			losesTheLock,
			[]int64{2, 2, 1, 1, 2, 1}},
	},
}

// twoAtOnce makes a call while another client holds the lock.
func twoAtOnce(p *place) []int64 {
	t, new := newTally(time.Minute), command(lockCommand)(p)
	first, second := oldHashOf(p, 15), oldHashOf(p, 15)
	var other bool
	before(first.rdb, "hset", func() { other = second.admits("hash") })
	t.add(p.asked(), first.admits("hash"), new(p.asked()))
	t.add(p.asked(), other, new(p.asked()))
	return t.numbers()
}

func crashesWithTheLock(p *place) []int64 {
	t, new := newTally(time.Minute), command(lockCommand)(p)
	first, second := oldHashOf(p, 15), oldHashOf(p, 15)
	before(first.rdb, "hset", crash)
	crashes(func() { first.admits("hash") })
	t.add(p.asked(), false, new(p.asked()))
	for range 2 {
		for range 15 {
			t.add(p.asked(), second.admits("hash"), new(p.asked()))
		}
		p.at(p.elapsed() + 5*time.Second)
	}
	return t.numbers()
}

// losesTheLock stops the first process after its read, until its lock has expired.
func losesTheLock(p *place) []int64 {
	t, new := newTally(time.Minute), command("CL.THROTTLE user 0 1 60 N")(p)
	first, second := oldHashOf(p, 1), oldHashOf(p, 1)
	var other bool
	before(first.rdb, "hset", func() {
		p.at(6 * time.Second)
		other = second.admits("hash")
	})
	t.add(p.asked(), first.admits("hash"), new(p.asked()))
	t.add(p.asked(), other, new(p.asked()))
	return t.numbers()
}

// A delayed process deletes a lock that by now another process holds.
func TestADeletedLockIsAnothers(t *testing.T) {
	p := newPlace(t)
	first, other := oldHashOf(p, 15), p.redis()
	before(first.rdb, "hset", func() {
		p.at(6 * time.Second)
		assert.True(t, other.SetNX(ctx, "hash:lock", 1, 5*time.Second).Val())
	})
	assert.True(t, first.admits("hash"))
	assert.Zero(t, other.Exists(ctx, "hash:lock").Val())
}

// oldHashOf returns a hashFunnel that refills its capacity in half a minute.
func oldHashOf(p *place, capacity float64) hashFunnel {
	return hashFunnel{p.redis(), full(capacity, max(1, capacity*2)/60), p.clock.Now}
}
