//go:build unix

package backend

import (
	"net"
	"syscall"
)

// hasInput reports whether there is something to read, the end of the connection included.
func hasInput(conn net.Conn) bool {
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return true
	}
	quiet := false
	err = raw.Control(func(descriptor uintptr) {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(descriptor), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		quiet = err == syscall.EAGAIN || err == syscall.EWOULDBLOCK || err == syscall.EINTR
	})
	return err != nil || !quiet
}
