package persist

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncData is fdatasync: it writes the content and the size of a file, but not its times, which
// would take a second write.
func syncData(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); err != unix.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
