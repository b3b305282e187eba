package webhook

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var secret = []byte("0123456789abcdef")

// receiver is a server that gets reports, and answers as a test says.
type receiver struct {
	*httptest.Server
	got    chan *http.Request // with the body read
	answer func(w http.ResponseWriter, r *http.Request)
}

func receive(t *testing.T, answer func(w http.ResponseWriter, r *http.Request)) *receiver {
	rec := &receiver{got: make(chan *http.Request, 10_000), answer: answer}
	rec.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		rec.got <- r
		if rec.answer != nil {
			rec.answer(w, r)
		}
	}))
	t.Cleanup(rec.Close)
	return rec
}

// pauses records the pauses of a Sender, each of which lasts until the test says so, or until ctx is done.
type pauses struct {
	begun chan time.Duration
	end   chan struct{}
}

func newPauses() *pauses { return &pauses{make(chan time.Duration, 10_000), make(chan struct{})} }

func (p *pauses) wait(ctx context.Context, d time.Duration) {
	p.begun <- d
	select {
	case <-ctx.Done():
	case <-p.end:
	}
}

// logged is the text of a log.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func start(t *testing.T, url string, change func(*Config)) (*Sender, *logged) {
	log := new(logged)
	c := Config{URL: url, Secret: secret, Log: slog.New(slog.NewTextHandler(log, nil)),
		Unix: func() int64 { return 1767225600 }, Timeout: time.Minute,
		Wait: func(context.Context, time.Duration) {}}
	change(&c)
	s := New(c)
	t.Cleanup(func() {
		s.Stop(t.Context()) // which is done already
		require.NotContains(t, log.String(), string(secret))
	})
	return s, log
}

func (s *Sender) counts() string {
	return fmt.Sprintf("delivered %d, failed %d, dropped %d, waiting %d", s.delivered.Load(), s.failed.Load(),
		s.dropped.Load(), s.waiting.Load())
}

func stopped(s *Sender) string {
	s.Stop(context.Background())
	return s.counts()
}

func TestPost(t *testing.T) {
	rec := receive(t, nil)
	s, log := start(t, rec.URL+"/hook?token=hidden", func(*Config) {})
	s.Offer("a-1", []byte(`{"id":"a-1"}`))
	r := <-rec.got
	body, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.Equal(t, `{"id":"a-1"}`, string(body))
	require.Equal(t, "POST /hook?token=hidden", r.Method+" "+r.RequestURI)
	require.Equal(t, "application/json", r.Header.Get("Content-Type"))
	require.Equal(t, "a-1", r.Header.Get(IDField))
	require.Equal(t, "1767225600", r.Header.Get(TimeField))
	// printf '1767225600.{"id":"a-1"}' | openssl dgst -sha256 -hmac 0123456789abcdef
	require.Equal(t, "v1=9ad3c620bdc16cd06a173a4ffe573fa14cf05de70e6e6f0ae19ccc7d1af878d5", r.Header.Get(SignatureField))
	require.Equal(t, "delivered 1, failed 0, dropped 0, waiting 0", stopped(s))
	require.Empty(t, log.String())
	s.Offer("a-2", nil)
	require.Equal(t, "delivered 1, failed 0, dropped 1, waiting 0", s.counts(), "it has stopped")
}

// A report is tried again until it is taken, with pauses that grow.
func TestFailuresAreTriedAgain(t *testing.T) {
	failures := []func(w http.ResponseWriter){
		func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) },
		func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) },
		func(w http.ResponseWriter) { w.Header().Set("Location", "/other"); w.WriteHeader(http.StatusFound) },
		func(w http.ResponseWriter) {
			w.Header().Set("Location", "/other")
			w.WriteHeader(http.StatusTemporaryRedirect)
		},
		func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, // cuts the connection
		func(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) },
	}
	var tries atomic.Int64
	rec := receive(t, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "/", r.URL.Path, "a redirect was followed")
		failures[tries.Add(1)-1](w)
	})
	p := newPauses()
	s, log := start(t, rec.URL+"/?token=hidden", func(c *Config) { c.Wait = p.wait })
	s.Offer("a-1", []byte("{}"))
	for i := range len(failures) - 1 {
		most := firstPause << i
		d := <-p.begun
		require.True(t, most/2 <= d && d <= most, "%d: %v", i, d)
		p.end <- struct{}{}
	}
	require.Equal(t, "delivered 1, failed 5, dropped 0, waiting 0", stopped(s))
	require.Contains(t, log.String(), `error="the answer has status 500"`)
	require.Contains(t, log.String(), "the webhook takes reports again")
	require.NotContains(t, log.String(), "hidden")
	for range failures {
		require.Equal(t, "a-1", (<-rec.got).Header.Get(IDField), "a repetition has the same ID")
	}
}

func TestPausesAreBounded(t *testing.T) {
	for tries := 1; tries <= maxTries; tries++ {
		d := pause(tries)
		require.True(t, firstPause/2 <= d && d <= longest, d)
	}
}

// A report that is never taken is dropped after some tries.
func TestReportIsDroppedAfterTries(t *testing.T) {
	rec := receive(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	p := newPauses()
	s, log := start(t, rec.URL, func(c *Config) { c.Wait = p.wait })
	s.Offer("a-1", []byte("{}"))
	for range maxTries - 1 {
		<-p.begun
		p.end <- struct{}{}
	}
	for range maxTries {
		<-rec.got
	}
	require.Equal(t, "delivered 0, failed 10, dropped 1, waiting 0", stopped(s))
	require.Contains(t, log.String(), "a report to --webhook was dropped")
}

// A server that takes connections and never answers is given up after the timeout, and one that is away at once.
func TestServerHangsOrIsAway(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := newPauses()
	s, log := start(t, "http://"+listener.Addr().String()+"/?token=hidden", func(c *Config) {
		c.Wait, c.Timeout = p.wait, 20*time.Millisecond
	})
	s.Offer("a-1", []byte("{}"))
	<-p.begun
	require.NoError(t, listener.Close())
	p.end <- struct{}{}
	<-p.begun
	require.Equal(t, "delivered 0, failed 2, dropped 0, waiting 1", s.counts())
	require.NotContains(t, log.String(), "hidden")
	require.Equal(t, "delivered 0, failed 3, dropped 1, waiting 0", stopped(s), "the last try is at once")
}

// While the server hangs, no more reports wait than the queue has places. Offer never blocks.
func TestQueueIsBounded(t *testing.T) {
	release := make(chan struct{})
	rec := receive(t, func(http.ResponseWriter, *http.Request) { <-release })
	s, log := start(t, rec.URL, func(*Config) {})
	for range workers {
		s.Offer("first", []byte("{}"))
		<-rec.got
	}
	for range maxWaiting + 7 {
		s.Offer("other", []byte("{}"))
	}
	require.EqualValues(t, maxWaiting+workers, s.waiting.Load())
	require.EqualValues(t, 7, s.dropped.Load())
	require.Contains(t, log.String(), `reason="too many wait"`)
	close(release)
	require.Equal(t, fmt.Sprintf("delivered %d, failed 0, dropped 7, waiting 0", maxWaiting+workers), stopped(s))
}

// Stop ends the pauses, tries each report once more, and ends requests when its time is over.
func TestStop(t *testing.T) {
	var answers sync.Map
	rec := receive(t, func(w http.ResponseWriter, r *http.Request) {
		if _, again := answers.LoadOrStore(r.Header.Get(IDField), true); !again {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	p := newPauses()
	s, _ := start(t, rec.URL, func(c *Config) { c.Wait = p.wait })
	for i := range workers {
		s.Offer(fmt.Sprint(i), []byte("{}"))
	}
	for range workers {
		<-p.begun
	}
	require.Equal(t, "delivered 4, failed 4, dropped 0, waiting 0", stopped(s))
	s.Stop(context.Background()) // has no effect any more

	release := make(chan struct{})
	defer close(release)
	hangs := receive(t, func(http.ResponseWriter, *http.Request) { <-release })
	s, _ = start(t, hangs.URL, func(*Config) {})
	for range workers + 3 {
		s.Offer("x", []byte("{}"))
	}
	for range workers {
		<-hangs.got
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s.Stop(ctx)
	require.Equal(t, "delivered 0, failed 4, dropped 7, waiting 0", s.counts())
}

// A certificate that cannot be verified is a failure; https works with an authority that the system knows.
func TestTLSIsVerified(t *testing.T) {
	rec := &receiver{got: make(chan *http.Request, 10)}
	rec.Server = httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { rec.got <- r }))
	defer rec.Close()
	rec.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	p := newPauses()
	s, log := start(t, rec.URL, func(c *Config) { c.Wait = p.wait })
	s.Offer("a-1", []byte("{}"))
	<-p.begun
	require.Contains(t, log.String(), "certificate signed by unknown authority")
	s.client.Transport = rec.Client().Transport
	require.Equal(t, "delivered 1, failed 1, dropped 0, waiting 0", stopped(s))
	require.Equal(t, "a-1", (<-rec.got).Header.Get(IDField))
}

func TestSettings(t *testing.T) {
	for url, want := range map[string]string{
		"": "", "http://localhost": "", "https://example.com:8443/a?b=c": "", "http://[::1]:80/": "",
		"ftp://example.com": errURL.Error(), "example.com": errURL.Error(), "http://": errURL.Error(),
		"http://u:secret@example.com": errURL.Error(), "http://example.com/#secret": errURL.Error(),
		"http://exa mple.com": errURL.Error(), "http://example.com/" + string(make([]byte, 2048)): errURL.Error(),
	} {
		s := Settings{URL: url}
		if url != "" {
			s.SecretFile = "file"
		}
		got := ""
		if err := s.Check(); err != nil {
			got = err.Error()
		}
		require.Equal(t, want, got, url)
	}
	require.EqualError(t, (&Settings{URL: "http://a"}).Check(), "--webhook needs --webhook-secret-file")
	require.Error(t, (&Settings{SecretFile: "a"}).Check())
	require.Error(t, CheckSecret(secret[:15]))
	require.NoError(t, CheckSecret(secret))
}

// The sender of no webhook does nothing.
func TestNilSender(t *testing.T) {
	var s *Sender
	s.Stop(context.Background())
	require.Empty(t, s.Metrics().Metrics)
}
