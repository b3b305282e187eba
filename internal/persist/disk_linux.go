package persist

import (
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// syncData is fdatasync: it writes the content and the size of a file, but not its times, because
// writing the times would take another write.
func syncData(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); err != unix.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}

// freeBytes returns how many bytes can be written in a folder, or the maximum if that is unknown.
func freeBytes(path string) int64 {
	var stat unix.Statfs_t
	if unix.Statfs(path, &stat) != nil {
		return math.MaxInt64
	}
	return int64(stat.Bavail) * stat.Bsize
}
