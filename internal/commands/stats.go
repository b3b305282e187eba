package commands

import (
	"strings"
	"sync/atomic"

	"cellserver/internal/command"
	"cellserver/internal/stats"
	"cellserver/internal/store"
)

// What INFO counts by command. A session counts for itself, and adds to what all share once a turn:
// so pipelined calls of one command cost an atomic operation together, as much as counting them all
// in one number did.

// tally is what a session has counted of a row and not added yet.
type tally struct {
	row            *command.Command
	calls, limited int64
}

// tallies are so many rows: those of an ordinary pipeline.
const tallies = 4

// count counts a call, which then is the latest.
func (s *Session) count(row *command.Command) {
	if row != s.row {
		s.turnTo(row)
	}
	s.tallies[s.tally].calls++
}

// turnTo finds the place where the calls of a row are counted; s.row is the row of s.tally, if it
// is any.
func (s *Session) turnTo(row *command.Command) {
	s.tallies[s.tally].limited += s.call.Limited
	s.call.Limited = 0
	s.row, s.varied = row, true
	s.slowPath = s.slowPath || s.instance.isNew(row)
	for i := range s.tallies {
		if t := &s.tallies[i]; t.row == row || t.calls == 0 {
			s.tally, t.row = i, row
			return
		}
	}
	s.fold()
	s.tally, s.tallies[0].row = 0, row
}

// fold adds what was counted to what all sessions share.
func (s *Session) fold() {
	t := &s.tallies[s.tally]
	t.limited += s.call.Limited
	s.call.Limited = 0
	s.instance.addTally(t)
	if s.varied {
		for i := range s.tallies {
			s.instance.addTally(&s.tallies[i])
		}
		s.varied = false
	}
	s.instance.countFound(&s.call)
}

func (in *Instance) addTally(t *tally) {
	if t.calls == 0 {
		return
	}
	r := in.statsOf(t.row)
	r.Calls.Add(t.calls)
	if t.limited > 0 {
		r.Limited.Add(t.limited)
	}
	t.calls, t.limited = 0, 0
}

// countFound adds what was read to what all sessions share.
func (in *Instance) countFound(c *command.Call) {
	if c.Hits|c.Misses != 0 {
		in.stats.hits.Add(c.Hits)
		in.stats.misses.Add(c.Misses)
		c.Hits, c.Misses = 0, 0
	}
}

// statsOf is where a row is counted. Rows that join the table later, as in tests, share the last
// place.
func (in *Instance) statsOf(row *command.Command) *stats.Calls {
	return &in.rows[min(row.Number, len(in.rows)-1)]
}

// reject counts a call that was refused before it was made.
func (s *Session) reject(row *command.Command, err error) error {
	s.instance.statsOf(row).Rejected.Add(1)
	s.rejected = true
	return err
}

// fail counts an error reply, by its first word; row is what failed, nil if nothing was made.
func (in *Instance) fail(row *command.Command, err error) (says string) {
	says = command.ErrorText(err)
	in.stats.errors.Add(1)
	if row != nil {
		in.statsOf(row).Failed.Add(1)
	}
	code, _, _ := strings.Cut(says, " ")
	in.codes.Add(code)
	return says
}

// calls is how many calls were made of all commands.
func (in *Instance) calls() (sum int64) {
	for i := range in.rows {
		sum += in.rows[i].Calls.Load()
	}
	return sum
}

// resetStats is CONFIG RESETSTAT.
func (in *Instance) resetStats(view store.View) {
	for i := range in.rows {
		in.rows[i].Reset()
	}
	in.codes.Reset()
	s := &in.stats
	for _, n := range []*atomic.Int64{&s.connections, &s.errors, &s.rejected, &s.queryCut, &s.hits, &s.misses} {
		n.Store(0)
	}
	s.expired.Store(in.expired(view))
	in.traffic.Reset()
}

// expired is how many keys have expired since the start. Within a transaction only its own view may
// be asked.
func (in *Instance) expired(of store.View) (sum int64) {
	for _, u := range store.UsageOf(of) {
		sum += u.Expired
	}
	return sum
}

// sampleEvery is of how many turns one has the time of its first call taken, so that INFO can tell
// what quick commands cost. A power of two.
const sampleEvery = 128

// lookUp says, at the beginning of a turn, whether its calls need more than to be made.
func (s *Session) lookUp() {
	s.turns++
	s.again = false
	s.slowPath = s.replyMode != repliesOn || s.instance.hooks.Load() != 0 || s.turns%sampleEvery == 0
	s.ReloadUser()
}

// eventOf is LATENCY's name for calls of a row.
func eventOf(row *command.Command) string {
	if row.Flags&command.Fast != 0 {
		return "fast-command"
	}
	return "command"
}

// runTimed runs a call, and tells those who want to know of it.
func runTimed(c *command.Call, row *command.Command, words [][]byte, repeats bool) error {
	clock := c.Server.Clock
	began, misses := clock.Now(), c.Misses
	var err error
	if short(c, row) {
		err = runShort(c, row, words, repeats)
	} else {
		err = c.Run(row, words, repeats)
	}
	if c.Offloaded {
		return err
	}
	in := instanceOf(c)
	if took := clock.Now() - began; !c.Blocks && in.observe(row, took) {
		in.slowlog.Add(newSlowCall(c, row, words), took/1000)
	}
	if in.hooks.Load()&monitored != 0 {
		show(c, row, words)
	}
	if in.hooks.Load()&notifying != 0 {
		notify(c, misses, err != nil)
	}
	return err
}

// observe tells those who want to know how long a call took, in nanoseconds; true if SLOWLOG wants
// to keep it.
func (in *Instance) observe(row *command.Command, ns int64) bool {
	in.statsOf(row).Observe(ns, in.latency.on.Load())
	if in.latencyEvents.Threshold.Load() > 0 && row.Flags&command.Unlogged == 0 {
		clock := in.store.Clock()
		in.latencyEvents.Add(eventOf(row), (clock.Now()-ns+clock.Offset())/1e9, ns)
	}
	return row.Flags&command.Unlogged == 0 && in.slowlog.IsSlow(ns/1000)
}
