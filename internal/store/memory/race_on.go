//go:build race

package memory

// raceEnabled: the race detector makes every access to memory many times as slow, so the long
// simulations do less; and it would rightly report what Prefetch sees without a lock.
const raceEnabled = true
