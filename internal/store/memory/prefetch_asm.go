//go:build amd64 || arm64

package memory

// prefetch asks the processor to bring a cache line near, and does not wait for it. The address may
// be anything: one that nothing is at is ignored.
func prefetch(address uintptr)
