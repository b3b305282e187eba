//go:build !linux

package server

import (
	"fmt"

	"cellserver/internal/meter"
)

// DefaultTransport is the default of the option transport.
const DefaultTransport = Goroutines

// startLoops returns an error: there are event loops on Linux only.
func (*Server) startLoops(int, *meter.MaxCPUTime) (transport, error) {
	return nil, fmt.Errorf("the transport %s exists on Linux only: use %s", EventLoop, Goroutines)
}
