//go:build !amd64 && !arm64

package memory

// prefetch does nothing on processors without an implementation.
func prefetch(uintptr) {}
