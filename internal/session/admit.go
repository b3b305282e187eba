package session

import "cellserver/internal/command"

// admit returns an error if a call must not be made. It checks the user's rights, whether the keys
// are being loaded, whether the client is a monitor, whether memory is short, and whether the disk
// fails.
func (s *Session) admit(row *command.Command, words [][]byte, long [][]byte) error {
	if s.checked {
		if err := s.authorize(row, words, long); err != nil {
			return s.refuse(row, err)
		}
	}
	switch {
	case !s.slowPath:
	case s.instance.Hooks.Has(command.DataLoading) && row.Flags&command.Loading == 0:
		return s.refuse(row, command.ErrLoading)
	case s.Profile.Monitoring && row.Flags&(command.Write|command.ReadOnly) != 0:
		return s.reject(row, errMonitors)
	case s.outOfMemory(row):
		return s.refuse(row, errOOM)
	case s.instance.Hooks.Has(command.DiskFailing) && s.needsDisk(row):
		return s.refuse(row, errDiskFails)
	}
	return nil
}

const (
	errMonitors  command.Refusal = "ERR Replica can't interact with the keyspace"
	errOOM       command.Refusal = "OOM command not allowed when used memory > 'maxmemory'."
	errDiskFails command.Refusal = "MISCONF cellserver cannot write to its folder (--dir), and commands that may write are refused " +
		"meanwhile (stop-writes-on-bgsave-error). INFO persistence and the log have the reason."
)

// needsDisk reports whether a call is refused while the disk fails: a call that may write, EXEC of
// such a call, and PING, as in Redis.
func (s *Session) needsDisk(row *command.Command) bool {
	q := s.transaction.Queue
	return row.Flags&command.Write != 0 || row.Traits&command.ChecksHealth != 0 ||
		row.Traits&command.Executes != 0 && q != nil && q.Writes()
}

// outOfMemory reports whether a call is refused because memory is short: a call that may need
// memory, EXEC of such a call, and any call that is queued, except calls of limiters. Calls of
// limiters are never refused beforehand: most need no memory, and a flood of new keys must not
// disable the limits of existing keys. There is no eviction either: a limiter whose key is evicted
// lets its client through.
func (s *Session) outOfMemory(row *command.Command) bool {
	switch {
	case !s.instance.Hooks.Has(command.Full):
		return false
	case s.transaction.Queue == nil:
		return row.Flags&command.DenyOOM != 0
	case row.Traits&command.Executes != 0:
		return s.transaction.Queue.NeedsMemory()
	}
	return row.Group != "limiter" && row.Traits&command.AllowedFull == 0
}

// isMemoryShort reports whether memory is short for a call of a limiter.
func isMemoryShort(c *command.Call, row *command.Command) bool {
	return row.Traits&command.Decides != 0 && c.Server.Hooks.Has(command.Full)
}

// runWithoutGrowth makes a call over a view that takes no more memory.
func runWithoutGrowth(c *command.Call, row *command.Command, words [][]byte, repeats bool) error {
	view := c.View
	defer func() { c.View = view }()
	c.View = view.WithoutGrowth()
	return c.Run(row, words, repeats)
}

// holdForPause parks the session before its next call if that has to wait for the end of a CLIENT
// PAUSE. It returns true if the session is parked.
func (s *Session) holdForPause() bool {
	if !s.instance.Hooks.Has(command.Paused) {
		return false
	}
	row := s.ahead.peek()
	if row == nil {
		return false // the call is refused without waiting
	}
	q := s.transaction.Queue
	writes := row.Flags&command.Write != 0 || row.Traits&command.Executes != 0 && q != nil && q.Writes()
	if !s.instance.Blocked.Hold(s.Client, writes, func() { s.parked, s.postponed = true, true }) {
		return false
	}
	s.setLatestCommand(row)
	return true
}
