//go:build !linux

package server

import (
	"fmt"

	"cellserver/internal/meter"
)

// DefaultTransport is the transport where none is asked for.
const DefaultTransport = Goroutines

// startLoops: there are event loops on Linux only.
func (*Server) startLoops(int, *meter.MaxCPUTime) (transport, error) {
	return nil, fmt.Errorf("the transport %s is for Linux: there is %s", EventLoop, Goroutines)
}
