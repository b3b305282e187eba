package session

import (
	"cellserver/internal/command"
	"cellserver/internal/commands/connection"
)

// A session counts its calls itself, and adds them to the server's statistics once a turn: so the
// calls of one command in a pipeline cost an atomic operation together.

// tally is what a session has counted of a row and not added yet.
type tally struct {
	row            *command.Command
	calls, limited int64
}

// tallies is how many rows a session counts: those of an ordinary pipeline.
const tallies = 4

// count counts a call, which then is the latest.
func (s *Session) count(row *command.Command) {
	if row != s.row {
		s.turnTo(row)
	}
	s.tallies[s.tally].calls++
}

// turnTo finds the tally of a row. s.row is the row of s.tally, if it has any.
func (s *Session) turnTo(row *command.Command) {
	s.tallies[s.tally].limited += s.call.Limited
	s.call.Limited = 0
	s.row, s.varied = row, true
	s.slowPath = s.slowPath || s.instance.Stats.IsNew(row.Number)
	for i := range s.tallies {
		if t := &s.tallies[i]; t.row == row || t.calls == 0 {
			s.tally, t.row = i, row
			return
		}
	}
	s.fold()
	s.tally, s.tallies[0].row = 0, row
}

// fold adds what was counted to the server's statistics.
func (s *Session) fold() {
	t := &s.tallies[s.tally]
	t.limited += s.call.Limited
	s.call.Limited = 0
	s.instance.add(t)
	if s.varied {
		for i := range s.tallies {
			s.instance.add(&s.tallies[i])
		}
		s.varied = false
	}
	s.call.CountReads()
}

func (in *Instance) add(t *tally) {
	if t.calls == 0 {
		return
	}
	calls := in.Stats.Of(t.row.Number)
	calls.Calls.Add(t.calls)
	if t.limited > 0 {
		calls.Limited.Add(t.limited)
	}
	t.calls, t.limited = 0, 0
}

// CountCalls implements command.Session.
func (s *Session) CountCalls() {
	s.tallies[s.tally].calls--
	s.fold()
	s.tallies[s.tally].calls++
}

// reject counts a call that was refused before it was made.
func (s *Session) reject(row *command.Command, err error) error {
	s.instance.Stats.Of(row.Number).Rejected.Add(1)
	s.rejected = true
	return err
}

// sampleEvery is how often a turn's first call is timed, so that INFO can tell what quick commands
// take: in one of so many turns. A power of two.
const sampleEvery = 128

// beginTurn finds out, at the start of a turn, whether more is to be done than to make its calls.
func (s *Session) beginTurn() {
	s.turns++
	s.repeatable = false
	s.slowPath = s.replyMode != connection.RepliesOn || s.instance.Hooks.Any() || s.turns%sampleEvery == 0
	s.ReloadUser()
}

// TakeSlowPath implements command.Session.
func (s *Session) TakeSlowPath() { s.slowPath = true }

// OnSlowPath implements command.Session.
func (s *Session) OnSlowPath() bool { return s.slowPath }

// runTimed makes a call, adds its time to the statistics, and does what the hooks ask for.
func (in *Instance) runTimed(c *command.Call, row *command.Command, words [][]byte, repeats bool) error {
	misses := c.Misses
	ns, err := in.runAndTime(c, row, words, repeats)
	if c.Offloaded {
		return err
	}
	if !c.Blocks && in.Observe(row, ns) {
		in.Stats.SlowLog.Add(c.SlowCall(row, words), ns/1000)
	}
	in.runHooks(c, row, words, misses, err != nil)
	return err
}

// runAndTime makes a call, and returns the nanoseconds that it took.
func (in *Instance) runAndTime(c *command.Call, row *command.Command, words [][]byte,
	repeats bool) (ns int64, err error) {
	began := in.Clock.Now()
	if isMemoryShort(c, row) {
		err = runWithoutGrowth(c, row, words, repeats)
	} else {
		err = c.Run(row, words, repeats)
	}
	return in.Clock.Now() - began, err
}

// runHooks does what the hooks ask for after a call, which has read so many missing keys before.
func (in *Instance) runHooks(c *command.Call, row *command.Command, words [][]byte, misses int64, failed bool) {
	if in.Hooks.Has(command.Monitored) {
		in.Monitors.Show(c, row, words)
	}
	if in.Hooks.Has(command.Notifying) {
		in.notify(c, misses, failed)
	}
}
