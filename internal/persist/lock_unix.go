//go:build unix

package persist

import (
	"os"

	"golang.org/x/sys/unix"
)

// openFlags are flags for opening a file of a folder: a symbolic link is refused, and a pipe does
// not block.
const openFlags = unix.O_NOFOLLOW | unix.O_NONBLOCK

// tryLock locks a file, or returns errHeld if another process has locked it.
func tryLock(f *os.File) error {
	for {
		switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err {
		case unix.EINTR:
		case unix.EWOULDBLOCK:
			return errHeld
		default:
			return os.NewSyscallError("flock", err)
		}
	}
}
