package integration

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/httprate"
	httprateredis "github.com/go-chi/httprate-redis"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// bothServers start the servers on which httprate must behave alike. httprate is middleware that limits requests;
// httprate-redis counts for it with MULTI, INCRBY, EXPIRE and MGET. Both run here unmodified. Visitors must get the
// right responses, from cellserver and from a real redis-server.
var bothServers = map[string]func(t *testing.T) *peer.Server{
	"cellserver":   func(t *testing.T) *peer.Server { return peer.Start(t) },
	"redis-server": func(t *testing.T) *peer.Server { return peer.StartRedis(t) },
}

func eachServer(t *testing.T, test func(t *testing.T, server *peer.Server)) {
	for name, start := range bothServers {
		t.Run(name, func(t *testing.T) { test(t, start(t)) })
	}
}

// counterOn returns a counter without httprate's fallback to the site's own memory: with the
// fallback, every test would pass.
func counterOn(t *testing.T, config httprateredis.Config) httprate.LimitCounter {
	t.Helper()
	config.FallbackDisabled, config.FallbackTimeout = true, patience
	counter, err := httprateredis.NewRedisLimitCounter(&config)
	require.NoError(t, err)
	t.Cleanup(func() { counter.Close() })
	return counter
}

func at(server *peer.Server) httprateredis.Config {
	c := httprateredis.Config{Host: "127.0.0.1", Port: uint16(server.Port), ClientName: "site"}
	if server.TLS != nil { // httprate-redis has no options for TLS
		c.Client = peer.Client(&redis.Options{Addr: server.Addr, TLSConfig: server.TLS, ClientName: c.ClientName,
			PoolSize: 10, MinIdleConns: 1, MaxRetries: -1})
	}
	return c
}

// site limits each of its pages separately. /page?cost=2 counts twice.
func site(counter httprate.LimitCounter, limit int, window time.Duration) http.Handler {
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "welcome") })
	limited := httprate.LimitBy(limit, window, httprate.KeyByEndpoint, httprate.WithLimitCounter(counter))(page)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if cost, err := strconv.Atoi(r.FormValue("cost")); err == nil {
			r = r.WithContext(httprate.WithIncrement(r.Context(), cost))
		}
		limited.ServeHTTP(w, r)
	})
}

// visit returns the response to a visitor of a page in one line, with instants in seconds after an
// epoch.
func visit(handler http.Handler, epoch time.Time, page string) string {
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, page, nil))
	h := answer.Header()
	reset, _ := strconv.ParseInt(h.Get("X-RateLimit-Reset"), 10, 64)
	line := fmt.Sprintf("%d %s: %s of %s left, new at %d", answer.Code, strings.TrimSpace(answer.Body.String()),
		h.Get("X-RateLimit-Remaining"), h.Get("X-RateLimit-Limit"), reset-epoch.Unix())
	if price := h.Get("X-RateLimit-Increment"); price != "" {
		line += ", costs " + price
	}
	if wait := h.Get("Retry-After"); wait != "" {
		line += ", retry after " + wait
	}
	return line
}

// day is a window that does not end while a test runs, because httprate's windows begin by the wall
// clock.
type day struct {
	begin  time.Time
	length time.Duration
}

func today() day {
	now := time.Now().UTC()
	for length := 24 * time.Hour; ; length += time.Hour {
		if begin := now.Truncate(length); now.Sub(begin) < length-time.Hour {
			return day{begin, length}
		}
	}
}

// twoSites visits two sites in turn, which share only the server on which they count.
func twoSites(t *testing.T, today day, config func() httprateredis.Config) (replies []string) {
	var sites []http.Handler
	for range 2 {
		sites = append(sites, site(counterOn(t, config()), 5, today.length))
	}
	pages := []string{"/a", "/a", "/a?cost=2", "/a?cost=2", "/a", "/a", "/a", "/b", "/b?cost=5", "/b?cost=4"}
	for i, page := range pages {
		replies = append(replies, visit(sites[i%2], today.begin, page))
	}
	return replies
}

// repliesOfTwoSites returns the right responses of twoSites.
func repliesOfTwoSites(today day) []string {
	end := fmt.Sprintf(" of 5 left, new at %.0f", today.length.Seconds())
	refused := fmt.Sprintf(", retry after %.0f", today.length.Seconds())
	return []string{
		"200 welcome: 4" + end,
		"200 welcome: 3" + end,
		"200 welcome: 1" + end + ", costs 2",
		"429 Too Many Requests: 1" + end + ", costs 2" + refused,
		"200 welcome: 0" + end,
		"429 Too Many Requests: 0" + end + refused,
		"429 Too Many Requests: 0" + end + refused,
		"200 welcome: 4" + end,
		"429 Too Many Requests: 4" + end + ", costs 5" + refused,
		"200 welcome: 0" + end + ", costs 4",
	}
}

func TestHTTPRateOnTwoSites(t *testing.T) {
	eachServer(t, func(t *testing.T, server *peer.Server) {
		today := today()
		assert.Equal(t, repliesOfTwoSites(today), twoSites(t, today, func() httprateredis.Config { return at(server) }))
		c := client(t, server, 3)
		keys := c.Keys(inTime(t), "httprate:*").Val()
		assert.Len(t, keys, 2, "one key per page")
		for _, key := range keys {
			assert.InDelta(t, 3*today.length.Seconds(), c.TTL(inTime(t), key).Val().Seconds(), 60, key)
		}
	})
}

// losesIncrement is a client hook that makes a server look as if it had lost the third of all
// INCRBY.
type losesIncrement struct{ seen int }

func (*losesIncrement) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*losesIncrement) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (f *losesIncrement) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, calls []redis.Cmder) error {
		for _, call := range calls {
			if call.Name() != "incrby" {
				continue
			}
			if f.seen++; f.seen == 3 {
				call.Args()[2] = 0
			}
		}
		return next(ctx, calls)
	}
}

// These tests' comparisons find a counter that is one too low.
func TestHTTPRateShowsALostIncrement(t *testing.T) {
	c, today := client(t, peer.Start(t), 3), today()
	c.AddHook(&losesIncrement{})
	replies, want := twoSites(t, today, func() httprateredis.Config { return httprateredis.Config{Client: c} }),
		repliesOfTwoSites(today)
	assert.Equal(t, want[:3], replies[:3], "the responses before the loss")
	assert.Contains(t, want[3], "429")
	assert.Contains(t, replies[3], "200 welcome: 1 of 5 left")
}

// Over HTTP, a limit of 50 admits 50 requests to each page, whichever site receives them.
func TestHTTPRateOverHTTP(t *testing.T) {
	eachServer(t, func(t *testing.T, server *peer.Server) {
		today := today()
		var urls []string
		for range 2 {
			s := httptest.NewServer(site(counterOn(t, at(server)), 50, today.length))
			t.Cleanup(s.Close)
			urls = append(urls, s.URL)
		}
		for _, page := range []string{"/a", "/b"} {
			got := map[int]int{}
			for i := range 60 {
				answer, err := http.Get(urls[i%2] + page)
				require.NoError(t, err)
				answer.Body.Close()
				got[answer.StatusCode]++
			}
			assert.Equal(t, map[int]int{http.StatusOK: 50, http.StatusTooManyRequests: 10}, got, page)
		}
	})
}

// httprate reads a count and adds to it later, so two sites may both admit the last request. But
// every addition counts.
func TestHTTPRateCountsAllAtOnce(t *testing.T) {
	eachServer(t, func(t *testing.T, server *peer.Server) {
		today := today()
		var group sync.WaitGroup
		for range 8 {
			handler := site(counterOn(t, at(server)), 1000, today.length)
			group.Go(func() {
				for range 50 {
					assert.Contains(t, visit(handler, today.begin, "/a"), "200 welcome")
				}
			})
		}
		group.Wait()
		handler := site(counterOn(t, at(server)), 1000, today.length)
		assert.Contains(t, visit(handler, today.begin, "/a"), "200 welcome: 599 of 1000 left")
	})
}

// httprate assumes that the requests of the previous window were evenly spaced. In the bubble of synctest, httprate
// sees the test's clock. The server's clock is real: the server keeps the counters of 100 seconds for 300 real
// seconds.
func TestHTTPRateSlides(t *testing.T) {
	eachServer(t, func(t *testing.T, server *peer.Server) {
		synctest.Test(t, func(t *testing.T) {
			epoch := time.Now() // the bubble's time, a multiple of 100 seconds
			require.Equal(t, epoch, epoch.Truncate(100*time.Second))
			handler := site(counterOn(t, at(server)), 10, 100*time.Second)
			steps := []struct {
				second, welcome int // how many are admitted before one is refused
				refusal         string
			}{
				{0, 10, "0 of 10 left, new at 100"},
				{99, 0, "0 of 10 left, new at 100"},
				{100, 0, "0 of 10 left, new at 200"},  // the 10 requests of the previous window count in full
				{150, 5, "0 of 10 left, new at 200"},  // the 10 of the previous window count as 5
				{180, 3, "0 of 10 left, new at 200"},  // the same 10 count as 2, in addition to the 5 of this window
				{210, 3, "0 of 10 left, new at 300"},  // the 8 of the previous window count as 7.2, rounded
				{299, 7, "0 of 10 left, new at 300"},  // the same 8 count as 0.08, rounded, in addition to 3
				{500, 10, "0 of 10 left, new at 600"}, // the previous window had no requests
			}
			for _, step := range steps {
				<-time.After(time.Until(epoch.Add(time.Duration(step.second) * time.Second)))
				for range step.welcome {
					require.Contains(t, visit(handler, epoch, "/a"), "200 welcome", "%d s", step.second)
				}
				assert.Equal(t, "429 Too Many Requests: "+step.refusal+", retry after 100", visit(handler, epoch, "/a"), "%d s",
					step.second)
			}
		})
	})
}

// Counters expire three windows after the last addition.
func TestHTTPRateCountersExpire(t *testing.T) {
	eachServer(t, func(t *testing.T, server *peer.Server) {
		counter := counterOn(t, at(server))
		now := time.Unix(1_800_000_000, 0)
		before := now.Add(-time.Hour)
		counter.Config(10, 1000*time.Second)
		require.NoError(t, counter.IncrementBy("long", before, 3))
		require.NoError(t, counter.IncrementBy("long", now, 2))
		require.NoError(t, counter.Increment("long", now))
		counter.Config(10, 400*time.Millisecond) // three windows are 1.2 seconds; EXPIRE has whole seconds
		require.NoError(t, counter.IncrementBy("short", now, 2))
		assert.Eventually(t, func() bool {
			current, _, err := counter.Get("short", now, before)
			return err == nil && current == 0
		}, patience, 20*time.Millisecond)
		current, previous, err := counter.Get("long", now, before)
		assert.NoError(t, err)
		assert.Equal(t, []int{3, 3}, []int{current, previous})
	})
}
