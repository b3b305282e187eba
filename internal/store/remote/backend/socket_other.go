//go:build !unix

package backend

import "net"

// hasInput cannot be asked on this system: a connection that was closed by the server is noticed when
// there is no reply.
func hasInput(net.Conn) bool { return false }
