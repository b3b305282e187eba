package backend

import "sync/atomic"

// tripBounds are the upper bounds of the durations that are counted together, in nanoseconds. The first is for
// a server on the same machine, the last for a server that is about to be given up (DefaultSilence).
var tripBounds = [...]int64{
	50e3, 100e3, 250e3, 500e3, 1e6, 2.5e6, 5e6, 10e6, 25e6, 50e6, 100e6, 250e6, 500e6, 1e9,
}

// trips counts round trips by how long they took.
type trips struct {
	counts [len(tripBounds) + 1]atomic.Int64 // the last one is of longer ones
	total  atomic.Int64                      // nanoseconds
}

func (t *trips) add(nanoseconds int64) {
	i := 0
	for i < len(tripBounds) && nanoseconds > tripBounds[i] {
		i++
	}
	t.counts[i].Add(1)
	t.total.Add(nanoseconds)
}

// RoundTrips returns how many round trips took no longer than each of the bounds, in seconds, how many there
// were, and the sum of their durations in seconds. A round trip is a pipeline of requests, from when the
// first of it is written to when the last of its replies is read. Pipelines without all replies do not count.
func (b *Backend) RoundTrips() (below map[float64]uint64, count uint64, sum float64) {
	below = make(map[float64]uint64, len(tripBounds))
	for i := range b.trips.counts {
		count += uint64(b.trips.counts[i].Load())
		if i < len(tripBounds) {
			below[float64(tripBounds[i])/1e9] = count
		}
	}
	return below, count, float64(b.trips.total.Load()) / 1e9
}
