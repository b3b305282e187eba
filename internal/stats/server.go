package stats

import (
	"sync/atomic"

	"cellserver/internal/meter"
)

// Server holds all statistics of a server.
type Server struct {
	Connections atomic.Int64 // accepted since the start
	Refused     atomic.Int64 // connections that were refused: too many, or by protected mode
	QueryCut    atomic.Int64 // connections closed because their unread input was too long
	Errors      atomic.Int64 // error replies
	Hits        atomic.Int64 // keys that were read and existed
	Misses      atomic.Int64 // keys that were read and did not exist
	ExpiredThen atomic.Int64 // keys that had expired at the latest reset
	SweptThen   atomic.Int64 // keys of these that were removed without a call on them

	Codes    Codes
	SlowLog  SlowLog
	Latency  LatencyEvents
	Rates    Rates
	Traffic  AllTraffic
	Policies PolicyDecisions

	Turns, Holds *meter.MaxCPUTime // of event loops and of locks; nil if they are not measured

	calls       []Calls // by the commands' numbers
	tracking    atomic.Bool
	percentiles atomic.Pointer[[]float64]
}

// Begin allocates the counts of so many commands. It must be called before all other methods.
func (s *Server) Begin(commands int) { s.calls = make([]Calls, commands+1) }

// Of returns the counts of a command by its number. Commands that are added to the table later, as in
// tests, share the last one.
func (s *Server) Of(number int) *Calls { return &s.calls[min(number, len(s.calls)-1)] }

// Made returns the number of calls of all commands.
func (s *Server) Made() (sum int64) {
	for i := range s.calls {
		sum += s.calls[i].Calls.Load()
	}
	return sum
}

// Reset sets all counts to zero. expired is the number of keys that have expired so far, and swept the number of keys
// of these that were removed without a call on them: the store counts them, and cannot reset its counts.
func (s *Server) Reset(expired, swept int64) {
	for i := range s.calls {
		s.calls[i].Reset()
	}
	s.Codes.Reset()
	for _, n := range []*atomic.Int64{&s.Connections, &s.Refused, &s.QueryCut, &s.Errors, &s.Hits, &s.Misses} {
		n.Store(0)
	}
	s.ExpiredThen.Store(expired)
	s.SweptThen.Store(swept)
	s.Traffic.Reset()
	s.Policies.Reset()
}

// Latency tracking is a histogram, by command, of how long calls take. Redis times every call. Here
// a quick call takes no longer than reading the clock does, so only the first call of a command and
// then the first of every so many turns is timed: the histogram is of a sample, and says how large it
// is. Calls that are not quick are all timed. Calls.Ns needs no sample: see session.flushTallies.

// TracksLatency reports whether latency-tracking is on.
func (s *Server) TracksLatency() bool { return s.tracking.Load() }

// TrackLatency switches latency-tracking on or off. What was counted stays.
func (s *Server) TrackLatency(on bool) { s.tracking.Store(on) }

// IsNew reports whether the next call of a command must be timed, because none was.
func (s *Server) IsNew(number int) bool { return s.Of(number).Timed.Load() == 0 && s.TracksLatency() }

// ShowPercentiles sets the percentiles that INFO latencystats shows, each from 0 to 100.
func (s *Server) ShowPercentiles(list []float64) { s.percentiles.Store(&list) }

// Percentiles returns the percentiles that INFO latencystats shows.
func (s *Server) Percentiles() []float64 { return *s.percentiles.Load() }
