//go:build amd64 || arm64

package memory

// prefetch requests a cache line and does not wait for it. The address may be any number; an
// invalid one is ignored.
func prefetch(address uintptr)
