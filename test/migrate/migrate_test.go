// Package migrate runs common ways to limit with Redis, and compares each with the one command of
// cellserver that replaces it, for the same calls on the same clock. docs/migrate.md shows the code
// of these old ways, copied from here, and the counts.
package migrate

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"cellserver/test/peer"
)

func TestMain(m *testing.M) { peer.Main(m) }

var ctx = context.Background() // global, so that the code on the page stays short

// way is a section of the page: an old way, and the command that replaces it.
type way struct {
	name    string // of the table in the page
	command string // N stands for the quantity
	head    string // the table's head, with columns separated by |
	rows    []row
}

// row is some traffic and its results: exact numbers, in the order of the columns.
type row struct {
	traffic string
	play    func(p *place) []int64
	want    []int64
}

// ways are the sections, in the page's order.
func ways() []way {
	return []way{
		counterWay, secondWay, logWay, funnelWay, lockWay, listWay, jsonWay, permitsWay, spacingWay, gateWay, sleeperWay,
	}
}

func TestWays(t *testing.T) {
	for _, w := range ways() {
		t.Run(w.name, func(t *testing.T) {
			for _, r := range w.rows {
				assert.Empty(t, r.difference(t))
			}
		})
	}
}

// difference returns "" if the numbers are the wanted ones.
func (r row) difference(t *testing.T) string {
	if got := r.play(newPlace(t)); !slices.Equal(r.want, got) {
		return fmt.Sprintf("%s: want %v, got %v", r.traffic, r.want, got)
	}
	return ""
}

// An old way that admits one call too many changes the numbers.
func TestAnOldWayThatAdmitsOneTooManyIsSeen(t *testing.T) {
	right := counterWay.rows[0]
	assert.Empty(t, right.difference(t))
	wrong := row{right.traffic,
		compare(every(time.Second, 180), time.Minute, oneTooMany(onCellserver(oldCounter)), command(counterCommand)),
		right.want}
	assert.Equal(t, "one a second, 3 minutes: want [180 60 60 180 20 20], got [180 61 60 179 21 20]", wrong.difference(t))
}

// oneTooMany admits the first call that the side refuses.
func oneTooMany(s side) side {
	return func(p *place) asks {
		admits, spent := s(p), false
		return func(c call) bool {
			if admits(c) {
				return true
			}
			first := !spent
			spent = true
			return first
		}
	}
}

// call asks for a quantity, at a time from the start.
type call struct {
	at       time.Duration
	quantity int64
	client   int // from 0, if several clients make calls
}

// asks reports whether a call is admitted.
type asks func(c call) bool

// side is one of the two compared sides, at a place.
type side func(p *place) asks

// oldWay is an old way, with a client of any server, and its own clock.
type oldWay func(rdb *redis.Client, now func() int64) asks

// onCellserver makes a side of an old way that runs on cellserver unchanged. onModel makes a side of an old way
// that needs commands which cellserver does not have.
func onCellserver(o oldWay) side {
	return func(p *place) asks { return o(p.cellserver(), p.clock.Now) }
}
func onModel(o oldWay) side { return func(p *place) asks { return o(p.redis(), p.clock.Now) } }

// command is the side of cellserver.
func command(line string) side {
	return func(p *place) asks {
		rdb := p.cellserver()
		return func(c call) bool { return allowed(rdb, line, c.quantity) }
	}
}

// allowed sends a limiter's command and reads the first element of its reply: 0 means allowed.
func allowed(rdb *redis.Client, line string, quantity int64) bool {
	return reply(rdb, line, quantity)[0] == int64(0)
}

func reply(rdb *redis.Client, line string, quantity int64) []any {
	var words []any
	for _, word := range strings.Fields(line) {
		if word == "N" {
			word = strconv.FormatInt(quantity, 10)
		}
		words = append(words, word)
	}
	elements, err := rdb.Do(ctx, words...).Slice()
	if err != nil {
		panic(fmt.Sprint(words, ": ", err))
	}
	return elements
}

// headOf returns the head of most tables.
func headOf(period string) string {
	return "calls | old admits | new admits | same answer | old, most in " + period + " | new, most in " + period
}

// compare makes the same calls on both sides.
func compare(calls []call, period time.Duration, old, new side) func(p *place) []int64 {
	return func(p *place) []int64 {
		oldAdmits, newAdmits, t := old(p), new(p), newTally(period)
		for _, c := range calls {
			p.at(c.at)
			t.add(c, oldAdmits(c), newAdmits(c))
		}
		return t.numbers()
	}
}

// tally counts the results of both sides for the same calls.
type tally struct {
	calls, alike int64
	old, new     peak
}

func newTally(period time.Duration) *tally {
	return &tally{old: peak{period: period}, new: peak{period: period}}
}

func (t *tally) add(c call, old, new bool) {
	t.calls++
	if old == new {
		t.alike++
	}
	taken := max(0, c.quantity) // a refund admits nothing
	t.old.add(c.at, taken*number01(old))
	t.new.add(c.at, taken*number01(new))
}

func (t *tally) numbers() []int64 {
	return []int64{t.calls, t.old.total, t.new.total, t.alike, t.old.most, t.new.most}
}

// peak adds up quantities, and records the maximum within a period.
type peak struct {
	period            time.Duration
	inView            []call
	total, held, most int64
}

func (p *peak) add(at time.Duration, quantity int64) {
	for len(p.inView) > 0 && p.inView[0].at+p.period <= at {
		p.held -= p.inView[0].quantity
		p.inView = p.inView[1:]
	}
	p.inView = append(p.inView, call{at: at, quantity: quantity})
	p.total += quantity
	p.held += quantity
	p.most = max(p.most, p.held)
}

// every returns calls of quantity 1, separated by gap. The first is at the start.
func every(gap time.Duration, times int) (calls []call) {
	for i := range times {
		calls = append(calls, call{at: time.Duration(i) * gap, quantity: 1})
	}
	return calls
}

// at returns calls of these quantities at one time.
func at(time time.Duration, quantities ...int64) (calls []call) {
	for _, quantity := range quantities {
		calls = append(calls, call{at: time, quantity: quantity})
	}
	return calls
}

// ones returns n quantities of 1.
func ones(times int) []int64 { return slices.Repeat([]int64{1}, times) }

// ofEach distributes the calls over n clients in turn.
func ofEach(clients int, calls []call) []call {
	calls = slices.Clone(calls)
	for i := range calls {
		calls[i].client = i % clients
	}
	return calls
}

// after returns the calls, later.
func after(delay time.Duration, calls []call) []call {
	calls = slices.Clone(calls)
	for i := range calls {
		calls[i].at += delay
	}
	return calls
}

// asked returns a call of quantity 1 at this instant.
func (p *place) asked() call { return call{at: p.elapsed(), quantity: 1} }

func number01(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}
