package cellserver

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

// quick are the default options of go-redis.
func quick(s *server) *redis.Options { return &redis.Options{Addr: s.addr} }

// TestStoppedServer: a stopped server makes a call wait for its timeout, or until its context ends, even if go-redis
// would wait for longer.
func TestStoppedServer(t *testing.T) {
	s := start(t)
	patient := &redis.Options{Addr: s.addr, ReadTimeout: time.Minute}
	limiter := New(client(t, patient), Options{Timeout: time.Minute, OnError: Deny})
	d, err := limiter.Throttle(ctx, "k", Rate{5, 1, time.Hour}, 1)
	check(t, err)
	if !d.Allowed || d.Cause != nil {
		t.Fatalf("%+v", d)
	}
	s.stop(t)
	began := time.Now()
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	d, err = limiter.Throttle(short, "k", Rate{5, 1, time.Hour}, 1)
	check(t, err)
	if d.Allowed || d.Cause == nil {
		t.Fatalf("decided without an answer: %+v", d)
	}
	if took := time.Since(began); took > 30*time.Second { // go-redis alone takes a minute
		t.Errorf("a context of 50 ms took %v", took)
	}
	cancelled, stop := context.WithCancel(ctx)
	stop()
	if _, err = limiter.Throttle(cancelled, "k", Rate{5, 1, time.Hour}, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled context: %v", err)
	}
	check(t, s.process.Signal(syscall.SIGCONT))
	for d.Cause != nil {
		d, err = limiter.Throttle(ctx, "k", Rate{5, 1, time.Hour}, 0)
		check(t, err)
	}
}

// TestOnError: without a server, each value of OnError decides in its own way, and mistakes are errors.
func TestOnError(t *testing.T) {
	for _, test := range []struct {
		on   OnError
		want int // of 20 calls
	}{{Allow, 20}, {Deny, 0}, {Local, 5}} {
		rdb := client(t, &redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
		limiter := New(rdb, Options{OnError: test.on, Share: 0.25, Timeout: 10 * time.Second})
		allowed := 0
		for range 20 {
			d, err := limiter.Throttle(ctx, "k", Rate{20, 1, 24 * time.Hour}, 1)
			check(t, err)
			if d.Cause == nil || !NoAnswer(d.Cause) {
				t.Fatalf("the cause is %v", d.Cause)
			}
			if d.Allowed {
				allowed++
			}
		}
		if allowed != test.want {
			t.Errorf("%v: %d allowed, and not %d", test.on, allowed, test.want)
		}
	}
	s := start(t)
	raw(t, s, "SET text value")
	limiter := New(client(t, quick(s)), Options{Timeout: time.Minute})
	d, err := limiter.Throttle(ctx, "text", Rate{5, 1, time.Hour}, 1)
	if d.Allowed || err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("%+v, %v", d, err)
	}
}

// TestFirstFive: after five calls without a reply, one call in 100 ms is sent, until there is a reply.
func TestFirstFive(t *testing.T) {
	n := newNode(client(t, &redis.Options{Addr: "127.0.0.1:1"}), time.Second)
	now, sent := time.Unix(0, 0), 0
	for range 1000 {
		if n.admit(now) {
			sent++
			n.count(errNoAnswer)
		}
		now = now.Add(time.Millisecond)
	}
	if want := failures + 1000/100; sent != want {
		t.Errorf("%d calls were sent, and not %d", sent, want)
	}
	n.count(nil)
	for range 2 {
		if !n.admit(now) {
			t.Error("after a reply, calls are not sent")
		}
	}
}

// TestLocal: a share of the limit is admitted, and a share of the tokens that the time adds.
func TestLocal(t *testing.T) {
	var b buckets
	now := time.Unix(0, 0)
	rate := Throttle("k", Rate{8, 60, time.Minute})
	admitted := 0
	for range 1000 {
		if b.take([]take{{Limit: rate, quantity: 1}}, 0.5, now).Allowed {
			admitted++
		}
		now = now.Add(10 * time.Millisecond)
	}
	if admitted != 4+5-1 { // half of the burst of 8, and half a token a second; the last token is late
		t.Errorf("%d admitted", admitted)
	}
	if b.take([]take{{Limit: rate, quantity: 1}}, 0.1, now).Allowed {
		t.Error("a share of less than 1 admits a call")
	}
	if d := b.take([]take{{Limit: Policy("api", "k"), quantity: 1}}, 1, now); d.Allowed {
		t.Error("a limit that only the server knows is admitted")
	}
	both := []take{{Limit: Fixed("a", 10, time.Hour), quantity: 8}, {Limit: Fixed("b", 10, time.Hour), quantity: 11}}
	if d := b.take(both, 1, now); d.Allowed || d.RetryAfter != Never {
		t.Errorf("%+v", d)
	}
	if d := b.take(both[:1], 1, now); !d.Allowed || d.Remaining != 2 {
		t.Errorf("a refused call took from its first limit: %+v", d)
	}
	for i := range mostBuckets + 100 {
		b.take([]take{{Limit: Fixed(strconv.Itoa(i), 10, time.Hour), quantity: 1}}, 1, now)
	}
	if len(b.byKey) > mostBuckets {
		t.Errorf("%d buckets", len(b.byKey))
	}
	now = now.Add(time.Hour)
	if d := b.take([]take{{Limit: Fixed("late", 10, time.Hour), quantity: 1}}, 1, now); !d.Allowed || len(b.byKey) > 1 {
		t.Errorf("full buckets stay: %+v, %d", d, len(b.byKey))
	}
}

// TestCallersShare: the calls of concurrent callers all count, each once, in fewer pipelines.
func TestCallersShare(t *testing.T) {
	s := start(t)
	limiter := New(client(t, patient(s, 2)), Options{Timeout: time.Minute})
	var callers sync.WaitGroup
	for range 50 {
		callers.Go(func() {
			for range 100 {
				d, err := limiter.Throttle(ctx, "k", Rate{10_000, 1, 24 * time.Hour}, 1)
				if err != nil || !d.Allowed || d.Cause != nil {
					t.Error(d, err)
				}
			}
		})
	}
	callers.Wait()
	d, err := limiter.Throttle(ctx, "k", Rate{10_000, 1, 24 * time.Hour}, 0)
	check(t, err)
	if d.Remaining != 5000 {
		t.Errorf("%d remain", d.Remaining)
	}
}

// TestFewGoAlone: eight calls are sent at once, and more wait for a pipeline, which does not wait for late flights.
func TestFewGoAlone(t *testing.T) {
	n := newNode(client(t, &redis.Options{Addr: "127.0.0.1:1"}), time.Second)
	now := time.Unix(0, 0)
	alone := func() (calls int) {
		for n.goesAlone(now) {
			calls++
		}
		return calls
	}
	if calls := alone(); calls != mostAlone {
		t.Errorf("%d calls went alone", calls)
	}
	n.waiting = make([]*flight, mostCalls+mostAlone)
	if n.areLate(now.Add(n.late)) || !n.areLate(now.Add(n.late+1)) {
		t.Error("flights are late too early, or too late")
	}
	n.shared++
	for range mostAlone {
		n.landed(time.Second)
	}
	now = now.Add(time.Hour)
	if many, calls := len(n.batch(now)), alone(); many != mostCalls || calls != 0 {
		t.Errorf("%d calls shared a pipeline, during which %d went alone", many, calls)
	}
	if n.areLate(now.Add(n.late)) || !n.areLate(now.Add(n.late+1)) {
		t.Error("a pipeline is late too early, or too late")
	}
	if rest := len(n.following()); rest != mostAlone || n.following() != nil || n.under > 0 || n.shared > 0 {
		t.Errorf("%d calls followed", rest)
	}
	n.shared++
	n.waiting = make([]*flight, 1)
	n.batch(now)
	now = now.Add(n.late + 1)
	if calls := alone(); calls != mostAlone-1 || !n.areLate(now) {
		t.Errorf("%d calls went alone beside a late pipeline, which must still be late", calls)
	}
}

// TestWaitIsCancelled: a call that waits leaves the queue when its context ends, and takes nothing.
func TestWaitIsCancelled(t *testing.T) {
	s := start(t)
	raw(t, s, "CL.THROTTLE k 0 1 1800 1")
	limiter := New(client(t, patient(s, -1)), Options{Timeout: time.Minute})
	next := listen(t, s, "C")
	waiting, cancel := context.WithCancel(ctx)
	ended := make(chan error)
	go func() {
		_, err := limiter.Throttle(waiting, "k", Rate{1, 1, 30 * time.Minute}, 1, Wait(time.Hour-time.Second))
		ended <- err
	}()
	for next()[0] != "CL.THROTTLE" {
	}
	rdb := client(t, patient(s, -1))
	for !strings.Contains(rdb.Info(ctx, "clients").Val(), "blocked_clients:1") {
	}
	cancel()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for strings.Contains(rdb.Info(ctx, "clients").Val(), "blocked_clients:1") {
	}
}

func TestRing(t *testing.T) {
	a, b := start(t), start(t)
	addrs := map[string]string{"a": a.addr, "b": b.addr}
	ring := redis.NewRing(&redis.RingOptions{Addrs: addrs, MaxRetries: -1, ReadTimeout: time.Minute})
	t.Cleanup(func() { _ = ring.Close() })
	limiter := NewRing(ring, Options{Timeout: time.Minute})
	for i := range 40 {
		key := strconv.Itoa(i)
		one, other := Fixed("{"+key+"}:a", 1, time.Hour), Fixed("{"+key+"}:b", 1, time.Hour)
		d, _, err := limiter.All(ctx, []Part{{Limit: one, Quantity: 1}, {Limit: other, Quantity: 1}})
		check(t, err)
		if !d.Allowed {
			t.Errorf("%+v", d)
		}
		d, err = limiter.Do(ctx, one, 1)
		check(t, err)
		if d.Allowed {
			t.Error("All and Do ask different servers")
		}
	}
	for _, s := range []*server{a, b} {
		if n := client(t, patient(s, -1)).DBSize(ctx).Val(); n == 0 || n == 80 {
			t.Errorf("a server has %d of 80 keys", n)
		}
	}
}

// TestLease: a lease is renewed, and its context ends when it is lost.
func TestLease(t *testing.T) {
	s := start(t)
	limiter := New(client(t, patient(s, -1)), Options{Timeout: time.Minute})
	lease, d, err := limiter.Acquire(ctx, "exports", 1, 3*time.Second)
	check(t, err)
	next := listen(t, s, "CL.RENEW")
	if words := next(); !d.Allowed || words[2] != "3" {
		t.Errorf("%+v, %v", d, words)
	}
	if lease.Context().Err() != nil {
		t.Error("the lease is lost")
	}
	raw(t, s, "DEL exports")
	<-lease.Context().Done()
}

func TestMiddleware(t *testing.T) {
	s := start(t)
	limiter := New(client(t, patient(s, -1)), Options{Timeout: time.Minute, OnError: Deny})
	user := func(r *http.Request) string { return r.Header.Get("User") }
	served := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("served")) })
	byPolicy := limiter.Middleware("tiny", user)(served)
	ofProgram := limiter.MiddlewareOf("mine", func(r *http.Request) Limit { return Fixed(user(r), 1, time.Hour) })(served)
	for _, test := range []struct {
		handler http.Handler
		name    string
	}{{byPolicy, "tiny"}, {ofProgram, "mine"}} {
		web := httptest.NewServer(test.handler)
		t.Cleanup(web.Close)
		for i, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
			response, err := http.Get(web.URL)
			check(t, err)
			check(t, response.Body.Close())
			h := response.Header
			if response.StatusCode != want || h.Get("RateLimit-Policy") != `"`+test.name+`";q=1;w=3600` ||
				!strings.HasPrefix(h.Get("RateLimit"), `"`+test.name+`";r=0;t=3`) || (h.Get("Retry-After") == "") != (i == 0) {
				t.Errorf("%s: %d %v", test.name, response.StatusCode, h)
			}
			if i == 1 && h.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%v", h)
			}
		}
	}
	check(t, s.process.Kill())
	gone := client(t, &redis.Options{Addr: s.addr, MaxRetries: -1, DialerRetries: 1})
	dead := New(gone, Options{Timeout: 10 * time.Second, OnError: Deny})
	recorder := httptest.NewRecorder()
	dead.Middleware("tiny", user)(served).ServeHTTP(recorder, httptest.NewRequest("GET", "/", nil))
	if recorder.Code != http.StatusServiceUnavailable {
		t.Errorf("without a server: %d", recorder.Code)
	}
}
