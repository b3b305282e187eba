package memory

import (
	"os"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// present returns how many bytes of a range are in memory.
func present(t *testing.T, memory []byte) (bytes int) {
	pages := make([]byte, len(memory)/os.Getpagesize())
	_, _, err := unix.Syscall(unix.SYS_MINCORE, address(memory), uintptr(len(memory)), uintptr(unsafe.Pointer(&pages[0])))
	require.Zero(t, err)
	for _, p := range pages {
		bytes += int(p&1) * os.Getpagesize()
	}
	return bytes
}
