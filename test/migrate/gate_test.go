package migrate

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
)

// gate counts how many holders are running at the same time.
type gate struct {
	rdb   *redis.Client
	limit int64
}

func (g gate) enter(key string) bool {
	if g.rdb.Incr(ctx, key).Val() <= g.limit {
		return true
	}
	g.rdb.Decr(ctx, key)
	return false
}

func (g gate) leave(key string) { g.rdb.Decr(ctx, key) }

const gateCommand = "CL.ACQUIRE jobs 3 30 worker-1 N"

var gateWay = way{
	name: "gate", command: gateCommand, head: "calls | old admits | new admits | old, most at once | new, most at once",
	rows: []row{
		{"60 jobs of 2 to 6 s each, one a second", gateRow(sixtyJobs), []int64{60, 48, 48, 3, 3}},
		{"3 enter; one crashes and two leave; a minute later 3 call", gateRow(oneCrashes), []int64{6, 5, 6, 3, 3}},
		{"one enters, leaves, and leaves again because it got no reply; then 4 call", gateRow(leavesTwice),
			[]int64{5, 5, 4, 4, 3}},
		{"one enters, and calls again because it got no reply; then 2 others call", gateRow(asksTwice),
			[]int64{4, 3, 4, 2, 3}},
		{"3 have entered; while a fourth is refused, one leaves and a fifth calls", leavesMeanwhile, []int64{5, 3, 4, 3, 3}},
		{"3 enter, and run for 40 s without `CL.RENEW`; after 35 s another calls", gateRow(worksLonger),
			[]int64{4, 3, 4, 3, 4}},
	},
}

// doors are both sides of the comparison, and the holders that are working on each side. A holder
// that has crashed is not working.
type doors struct {
	p        *place
	old      gate
	rdb      *redis.Client // a client of cellserver
	asked    int64
	admitted [2]int64
	atWork   [2]map[string]bool
	most     [2]int64
}

func gateRow(happens func(d *doors)) func(p *place) []int64 {
	return func(p *place) []int64 {
		d := newDoors(p)
		happens(d)
		return d.numbers()
	}
}

func newDoors(p *place) *doors {
	return &doors{p: p, old: gate{p.cellserver(), 3}, rdb: p.cellserver(), atWork: [2]map[string]bool{{}, {}}}
}

func (d *doors) numbers() []int64 {
	return []int64{d.asked, d.admitted[0], d.admitted[1], d.most[0], d.most[1]}
}

func (d *doors) ask(names ...string) {
	for _, name := range names {
		d.asked++
		d.answer(0, name, d.old.enter("gate"))
		d.answer(1, name, d.acquire(name))
	}
}

func (d *doors) acquire(name string) bool {
	return allowed(d.rdb, strings.Replace(gateCommand, "worker-1", name, 1), 1)
}

func (d *doors) answer(side int, name string, admitted bool) {
	if admitted {
		d.admitted[side]++
		d.atWork[side][name] = true
		d.most[side] = max(d.most[side], int64(len(d.atWork[side])))
	}
}

// leave makes admitted holders leave.
func (d *doors) leave(names ...string) {
	for _, name := range names {
		if d.atWork[0][name] {
			d.leaveOld(name)
		}
		if d.atWork[1][name] {
			d.leaveNew(name)
		}
	}
}

func (d *doors) leaveOld(name string) {
	d.old.leave("gate")
	delete(d.atWork[0], name)
}

func (d *doors) leaveNew(name string) {
	d.rdb.Do(ctx, "CL.RELEASE", "jobs", name)
	delete(d.atWork[1], name)
}

// crash ends a holder without a call.
func (d *doors) crash(name string) {
	delete(d.atWork[0], name)
	delete(d.atWork[1], name)
}

func sixtyJobs(d *doors) {
	ends := map[int][]string{}
	for second := range 70 {
		d.p.at(time.Duration(second) * time.Second)
		d.leave(ends[second]...)
		if second < 60 {
			name := "job-" + strconv.Itoa(second)
			d.ask(name)
			end := second + 2 + second*7%5
			ends[end] = append(ends[end], name)
		}
	}
}

func oneCrashes(d *doors) {
	d.ask("a", "b", "c")
	d.crash("a")
	d.leave("b", "c")
	d.p.at(time.Minute)
	d.ask("d", "e", "f")
}

func leavesTwice(d *doors) {
	d.ask("a")
	d.leave("a")
	d.leaveOld("a")
	d.leaveNew("a")
	d.ask("b", "c", "d", "e")
}

func asksTwice(d *doors) { d.ask("a", "a", "b", "c") }

func worksLonger(d *doors) {
	d.ask("a", "b", "c")
	d.p.at(35 * time.Second)
	d.ask("d")
}

// leavesMeanwhile makes the third holder leave, and a fifth holder call, when the fourth has
// counted itself in and not yet out again.
func leavesMeanwhile(p *place) []int64 {
	d := newDoors(p)
	d.ask("a", "b", "c")
	fourth := gate{p.cellserver(), 3}
	before(fourth.rdb, "decr", func() {
		d.leaveOld("c")
		d.answer(0, "e", d.old.enter("gate"))
	})
	d.asked += 2
	d.answer(0, "d", fourth.enter("gate"))
	d.answer(1, "d", d.acquire("d"))
	d.leaveNew("c")
	d.answer(1, "e", d.acquire("e"))
	return d.numbers()
}

// A crash takes a permit away for as long as the key exists, and nothing shows whose it was.
func TestALeakedPermitStays(t *testing.T) {
	p := newPlace(t)
	d := newDoors(p)
	d.ask("a", "b", "c")
	for _, name := range []string{"a", "b", "c"} {
		d.crash(name)
	}
	p.at(365 * 24 * time.Hour)
	assert.False(t, d.old.enter("gate"))
	assert.True(t, d.acquire("d"))
	assert.Equal(t, int64(-1), d.rdb.TTL(ctx, "gate").Val().Nanoseconds())
}
