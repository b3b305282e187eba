package session

import (
	"cellserver/internal/command"
	"cellserver/internal/commands/connection"
)

// A session counts its calls itself, and adds them to the server's statistics once a turn. So the
// calls of a pipeline to one command cost one atomic operation together. They share the time of the turn.

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

// flushTallies adds the counts to the server's statistics, and divides the time since the last flush equally among
// the calls.
func (s *Session) flushTallies() {
	t := &s.tallies[s.tally]
	t.limited += s.call.Limited
	s.call.Limited = 0
	now := s.instance.Clock.Now()
	if s.severalRows {
		s.addTallies(now - s.since)
	} else {
		s.Counts.Calls.Add(t.calls)
		s.instance.addTally(t, now-s.since)
	}
	s.since = now
	s.call.CountReads()
}

// addTallies adds the counts of several rows, whose calls share ns nanoseconds.
func (s *Session) addTallies(ns int64) {
	s.severalRows = false
	calls := int64(0)
	for i := range s.tallies {
		calls += s.tallies[i].calls
	}
	s.Counts.Calls.Add(calls)
	share := max(ns, 0) / max(calls, 1)
	for i := range s.tallies {
		s.instance.addTally(&s.tallies[i], share*s.tallies[i].calls)
	}
}

func (in *Instance) addTally(t *tally, ns int64) {
	if t.calls == 0 {
		return
	}
	calls := in.Stats.Of(t.row.Number)
	if t.limited > 0 {
		calls.Limited.Add(t.limited) // first: see stats.Calls
	}
	calls.Ns.Add(ns)
	calls.Calls.Add(t.calls)
	t.calls, t.limited = 0, 0
}

// CountCalls implements admin.Session.
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

// The first call of one turn in sampleEvery is timed by itself, for the histogram of how long calls take. It is a
// power of two.
const sampleEvery = 128

// beginTurn sets the conditions that hold for a whole turn: see slowPath and checked.
func (s *Session) beginTurn() {
	s.turns++
	s.since, s.call.Repeatable = 0, command.Nothing
	s.slowPath = s.replyMode != connection.RepliesOn || s.instance.Hooks.Any() || s.turns%sampleEvery == 0
	s.ReloadUser()
}

// TakeSlowPath implements command.Session.
func (s *Session) TakeSlowPath() { s.slowPath = true }

// OnSlowPath implements command.Session.
func (s *Session) OnSlowPath() bool { return s.slowPath }
