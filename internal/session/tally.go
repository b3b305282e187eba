package session

import (
	"cellserver/internal/command"
	"cellserver/internal/commands/connection"
)

// A session counts its calls itself, and adds them to the server's statistics once a turn. So the
// calls of a pipeline to one command cost one atomic operation together.

// tally holds the counts of a row that have not been added to the statistics.
type tally struct {
	row            *command.Command
	calls, limited int64
}

// tallies is the number of rows that a session counts at a time: as many as an ordinary pipeline
// calls.
const tallies = 4

// count counts a call of row.
func (s *Session) count(row *command.Command) {
	if row != s.row {
		s.selectTally(row)
	}
	s.tallies[s.tally].calls++
}

// selectTally sets s.row, and s.tally to the index of its tally. If all tallies are in use, it
// flushes them first.
func (s *Session) selectTally(row *command.Command) {
	s.tallies[s.tally].limited += s.call.Limited
	s.call.Limited = 0
	s.row, s.severalRows = row, true
	s.slowPath = s.slowPath || s.instance.Stats.IsNew(row.Number)
	for i := range s.tallies {
		if t := &s.tallies[i]; t.row == row || t.calls == 0 {
			s.tally, t.row = i, row
			return
		}
	}
	s.flushTallies()
	s.tally, s.tallies[0].row = 0, row
}

// flushTallies adds the counts to the server's statistics.
func (s *Session) flushTallies() {
	t := &s.tallies[s.tally]
	t.limited += s.call.Limited
	s.call.Limited = 0
	s.instance.addTally(t)
	if s.severalRows {
		for i := range s.tallies {
			s.instance.addTally(&s.tallies[i])
		}
		s.severalRows = false
	}
	s.call.CountReads()
}

func (in *Instance) addTally(t *tally) {
	if t.calls == 0 {
		return
	}
	calls := in.Stats.Of(t.row.Number)
	if t.limited > 0 {
		calls.Limited.Add(t.limited) // first: see stats.Calls
	}
	calls.Calls.Add(t.calls)
	t.calls, t.limited = 0, 0
}

// CountCalls implements command.Session.
func (s *Session) CountCalls() {
	s.tallies[s.tally].calls--
	s.flushTallies()
	s.tallies[s.tally].calls++
}

// reject counts a call that was refused before it was made.
func (s *Session) reject(row *command.Command, err error) error {
	s.instance.Stats.Of(row.Number).Rejected.Add(1)
	s.rejected = true
	return err
}

// The first call of one turn in sampleEvery is timed, so that INFO can show how long quick commands
// take. It is a power of two.
const sampleEvery = 128

// beginTurn sets the conditions that hold for a whole turn: see slowPath and checked.
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

// runTimed makes a call, adds its time to the statistics, and runs the hooks.
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

// runAndTime makes a call, and returns how long it took, in nanoseconds.
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

// runHooks runs the hooks after a call; misses is the value of c.Misses before the call.
func (in *Instance) runHooks(c *command.Call, row *command.Command, words [][]byte, misses int64, failed bool) {
	if in.Hooks.Has(command.Monitored) {
		in.Monitors.Show(c, row, words)
	}
	if in.Hooks.Has(command.Notifying) {
		in.notify(c, row, words, misses, failed)
	}
}
