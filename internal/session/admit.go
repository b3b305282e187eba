package session

import "cellserver/internal/command"

// admit returns an error if a call must not be made. It checks the user's rights, whether the keys
// are being loaded, whether the client is a monitor, whether memory is short, and whether the disk
// fails.
func (s *Session) admit(row *command.Command, words [][]byte, long *longCall) error {
	if s.rights != everything {
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
	case s.instance.Hooks.Has(command.DiskFailing) && s.flags(row)&command.Write != 0:
		return s.refuse(row, command.ErrDiskFails)
	case row.Admit.Refuse != nil:
		if err := row.Admit.Refuse(&s.call); err != nil {
			return s.refuse(row, err)
		}
	}
	return nil
}

const (
	errMonitors command.Refusal = "ERR Replica can't interact with the keyspace"
	errOOM      command.Refusal = "OOM command not allowed when used memory > 'maxmemory'."
)

// flags returns the flags of a call that is about to be made.
func (s *Session) flags(row *command.Command) command.Flags {
	if row.Admit.Flags != nil {
		return row.Admit.Flags(&s.call)
	}
	return row.Flags
}

// outOfMemory reports whether a call is refused because memory is short: any call that may need memory
// or is queued, except for calls of limiters. Calls of limiters are never refused beforehand, because
// most need no memory, and a flood of new keys must not disable the limits of existing keys. There is
// no eviction either: a limiter whose key is evicted lets its client through.
func (s *Session) outOfMemory(row *command.Command) bool {
	if !s.instance.Hooks.Has(command.Full) {
		return false
	}
	queued := s.transaction.Queue != nil && row.Group != "limiter" && row.Traits&command.AllowedFull == 0
	return queued || s.flags(row)&command.DenyOOM != 0
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
	if !s.instance.Blocked.Hold(s.Client, s.flags(row)&command.Write != 0) {
		return false
	}
	s.setLatestCommand(row)
	return true
}
