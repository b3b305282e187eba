package limiter

import (
	"sync"

	"cellserver/internal/command"
	"cellserver/internal/metric"
	"cellserver/internal/stats"
)

var (
	decisionsTotal = metric.NewCounter("decisions_total",
		"Decisions of limiters, by command and result: allowed, limited, shadow for a call that was allowed because a policy is in shadow mode, or error for a call that failed.",
		"command", "result")
)

// Metrics returns the metrics of decisions.
func (l *Family) Metrics(server *command.Server) []metric.Group {
	return append([]metric.Group{decisionMetrics(server)}, l.Decider.Metrics()...)
}

func decisionMetrics(server *command.Server) metric.Group {
	var shown shownDecisions
	return metric.Group{
		Metrics: []*metric.Metric{decisionsTotal},
		Read: func(out *metric.Samples) {
			server.EachCalled(func(row *command.Command, r *stats.Calls) {
				if row.Traits&command.Decides == 0 {
					return
				}
				calls := r.Calls.Load() // first: see shownDecisions
				limited, shadowed, failed := r.Limited.Load(), r.Shadowed.Load(), r.Failed.Load()
				allowed := shown.allowed(row.Number, calls, calls-limited-shadowed-failed)
				out.Int(decisionsTotal, allowed, row.Name, stats.Allowed.String())
				out.Int(decisionsTotal, limited, row.Name, stats.Limited.String())
				out.Int(decisionsTotal, failed, row.Name, stats.Failed.String())
				if row.Keys.Snapshot != nil { // it may ask policies
					out.Int(decisionsTotal, shadowed, row.Name, stats.Shadow.String())
				}
			})
		},
	}
}

// shownDecisions keeps the counters of allowed calls from falling. Allowed calls have no counter of their own: they
// are the calls that were neither limited, nor failed, nor allowed by shadow mode. While calls are made, these
// numbers are read at different moments. A limited call is counted as limited at once, but as a call only at the end
// of its turn, so the difference may be too small, but never too large. A counter that falls looks like a restart of
// the server, after which a monitoring system would count everything again; so the largest difference is shown.
//
// The exception is a call that is made outside the event loop, which is counted as a call first. Until it ends, it is
// shown as allowed; if it is refused then, the next call that is allowed makes up for it.
type shownDecisions struct {
	mu   sync.Mutex
	last map[int]shownCalls // by the numbers of the commands
}

type shownCalls struct{ calls, allowed int64 }

// allowed returns the number of allowed calls to show, given the number of calls, and of calls that were
// neither limited nor failed. If the calls have become fewer, CONFIG RESETSTAT has set them to zero.
func (s *shownDecisions) allowed(row int, calls, difference int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil {
		s.last = make(map[int]shownCalls)
	}
	allowed := max(difference, 0)
	if last := s.last[row]; calls >= last.calls {
		allowed = max(difference, last.allowed)
	}
	s.last[row] = shownCalls{calls, allowed}
	return allowed
}
