// Package webhook posts reports as HTTP requests: a webhook. It never delays who offers a report. Reports wait in a
// bounded queue; a report beyond it, and one that was tried often enough, is dropped and counted.
//
//	webhook.go   the queue, and how a report is tried again
//	request.go   one request: signature, time limit, no redirects
//	settings.go  options
//
// A report is delivered at least once, if it is not dropped, and in no order: some are posted at the same time, and one
// that has failed is tried again while later ones are posted. The receiver tells repetitions by the ID.
package webhook

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"cellserver/internal/metric"
)

// Config holds the parameters of New.
type Config struct {
	URL    string
	Secret []byte
	Log    *slog.Logger // of lines that may be frequent
	Unix   func() int64 // the time, in seconds

	// Timeout is how long a request may take; by default, ten seconds.
	Timeout time.Duration
	// Wait waits for a time before the next try, or until ctx is done. By default, it uses a timer.
	Wait func(ctx context.Context, d time.Duration)
}

// The bounds of a Sender. A report has at most 2 KiB.
const (
	maxWaiting = 1024 // reports
	workers    = 4    // requests at once
	maxTries   = 10   // of a report: the last one is about three minutes after the first
	firstPause = time.Second / 2
	longest    = time.Minute
)

// report is a report that waits.
type report struct {
	id   string
	body []byte
}

// Sender posts reports. A nil Sender has none.
type Sender struct {
	config Config
	client http.Client
	queue  chan report
	// stopping is done when no pause is made any more, and each report gets one more try. ended is done when the time
	// for these tries is over.
	stopping, ended context.Context
	stop, end       context.CancelFunc
	working         sync.WaitGroup

	mu     sync.RWMutex // held for reading while a report is put into the queue
	closed bool

	waiting   atomic.Int64 // reports that are in the queue, or are being tried
	delivered atomic.Int64 // requests
	failed    atomic.Int64 // requests
	dropped   atomic.Int64 // reports
	failing   atomic.Bool  // the last request has failed
}

// New returns a Sender, and starts it.
func New(c Config) *Sender {
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	if c.Wait == nil {
		c.Wait = func(ctx context.Context, d time.Duration) {
			select {
			case <-ctx.Done():
			case <-time.After(d):
			}
		}
	}
	s := &Sender{config: c, client: newClient(c.Timeout), queue: make(chan report, maxWaiting)}
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.ended, s.end = context.WithCancel(context.Background())
	for range workers {
		s.working.Go(func() {
			for r := range s.queue {
				s.deliver(r)
				s.waiting.Add(-1)
			}
		})
	}
	return s
}

// Offer has a report posted soon, unless too many wait. It never blocks. The body must not change afterwards.
func (s *Sender) Offer(id string, body []byte) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if !s.closed {
		s.waiting.Add(1)
		select {
		case s.queue <- report{id, body}:
			return
		default:
			s.waiting.Add(-1)
		}
	}
	s.drop("too many wait")
}

func (s *Sender) drop(reason string) {
	s.dropped.Add(1)
	s.config.Log.Warn("a report to --webhook was dropped", "reason", reason)
}

// deliver tries to post a report until it succeeds, or was tried often enough.
func (s *Sender) deliver(r report) {
	for try := 1; s.ended.Err() == nil; try++ {
		last := s.stopping.Err() != nil
		err := s.post(s.ended, r)
		if err == nil {
			s.delivered.Add(1)
			if s.failing.CompareAndSwap(true, false) {
				s.config.Log.Info("the webhook takes reports again")
			}
			return
		}
		s.failed.Add(1)
		if s.failing.CompareAndSwap(false, true) {
			s.config.Log.Warn("the webhook does not take reports: they are tried again", "error", err)
		}
		if last || try == maxTries {
			s.drop("the webhook does not take it")
			return
		}
		s.config.Wait(s.stopping, pause(try))
	}
	s.drop("the server stops")
}

// pause returns how long to wait after a number of tries: twice as long each time, and between the half and the whole
// of that at random, so that servers do not all come at once.
func pause(tries int) time.Duration {
	most := min(firstPause<<(tries-1), longest)
	return most/2 + rand.N(most/2)
}

// Stop tries each report that waits once more, and returns when all have been tried, or when ctx is done.
func (s *Sender) Stop(ctx context.Context) {
	if s == nil {
		return
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = true
	close(s.queue)
	s.mu.Unlock()
	s.stop()
	defer context.AfterFunc(ctx, s.end)()
	s.working.Wait()
	s.end()
	s.client.CloseIdleConnections()
}

var (
	requests = metric.NewCounter("webhook_requests_total", "Requests to --webhook, by result: delivered or failed.", "result")
	waiting  = metric.NewGauge("webhook_reports_waiting", "Reports that wait for --webhook, or are being sent.")
	dropped  = metric.NewCounter("webhook_reports_dropped_total",
		"Reports to --webhook that were dropped: because too many waited, or it did not take them in time.")
)

// Metrics returns the metrics of a Sender. Without one, there are none.
func (s *Sender) Metrics() metric.Group {
	if s == nil {
		return metric.Group{Read: func(*metric.Samples) {}}
	}
	return metric.Group{Metrics: []*metric.Metric{requests, waiting, dropped}, Read: func(out *metric.Samples) {
		out.Int(requests, s.delivered.Load(), "delivered")
		out.Int(requests, s.failed.Load(), "failed")
		out.Int(waiting, s.waiting.Load())
		out.Int(dropped, s.dropped.Load())
	}}
}
