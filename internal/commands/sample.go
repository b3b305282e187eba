package commands

import (
	"time"

	"cellserver/internal/stats"
)

// What INFO shows of the last moments, and what is looked at now and then.

// SampleEvery is how often Sample is to be called.
const SampleEvery = 100 * time.Millisecond

// Sample looks at how fast things go, and how much memory is used. One goroutine calls it every
// SampleEvery.
func (in *Instance) Sample() {
	now := in.Now()
	in.rates.Add(now, in.calls(), in.traffic.Sum())
	in.clients.SampleBuffers(now)
	in.clients.RetryEviction()
	in.weigh()
	in.clear()
}

// CountTraffic is for one more who counts.
func (in *Instance) CountTraffic() *stats.Traffic { return in.traffic.Register() }
