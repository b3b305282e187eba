//go:build unix

package persist

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// openFlags are flags for opening a file of a folder: a symbolic link is refused, and a pipe does
// not block.
const openFlags = unix.O_NOFOLLOW | unix.O_NONBLOCK

// tryLock locks a file, or returns errHeld if another process has locked it. A file that was opened for
// reading only is locked in shared mode: some file systems refuse an exclusive lock.
func tryLock(f *os.File, shared bool) error {
	how := unix.LOCK_EX
	if shared {
		how = unix.LOCK_SH
	}
	for {
		switch err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); err {
		case unix.EINTR:
		case unix.EWOULDBLOCK:
			return errHeld
		default:
			return os.NewSyscallError("flock", err)
		}
	}
}

// isReadOnly reports whether an error says that a file system is read-only.
func isReadOnly(err error) bool { return errors.Is(err, unix.EROFS) }

// isLink reports whether openFlags have refused a symbolic link.
func isLink(err error) bool { return errors.Is(err, unix.ELOOP) }
