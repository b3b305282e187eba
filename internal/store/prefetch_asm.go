//go:build amd64 || arm64

package store

// prefetch asks the processor to bring a cache line near, and does not wait for it.
//
//go:noescape
func prefetch(b *byte)
