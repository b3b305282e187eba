//go:build race

package memory

// raceEnabled is true under the race detector. It makes memory accesses many times slower, so that
// long simulations are shortened; and it would rightly report that prefetchRecords reads without a
// lock.
const raceEnabled = true
