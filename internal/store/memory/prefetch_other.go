//go:build !amd64 && !arm64

package memory

// prefetch does nothing on processors that nobody has written it for: they wait for memory as they
// come to it.
func prefetch(uintptr) {}
