package integration

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/certs"
	"cellserver/test/peer"
)

// startMonitored starts a server with --metrics-port, and returns the address of that port.
func startMonitored(t *testing.T, args ...string) (s *peer.Server, url string) {
	t.Helper()
	port := strconv.Itoa(peer.FreePort(t))
	return peer.Start(t, append(args, "--metrics-port", port)...), "http://127.0.0.1:" + port
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	response, err := http.Get(url)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(text)
}

// sumOf returns the sum of the series of a metric.
func sumOf(t *testing.T, body, name string) (sum int) {
	t.Helper()
	for line := range strings.Lines(body) {
		if !strings.HasPrefix(line, name+"{") {
			continue
		}
		fields := strings.Fields(line)
		value, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		require.NoError(t, err, line)
		sum += int(value)
	}
	return sum
}

// TestDecisionCountersAddUp: while many clients make calls, no counter falls, and afterwards the counters of
// decisions add up to the number of calls.
func TestDecisionCountersAddUp(t *testing.T) {
	const clients, calls = 8, 2000
	server, url := startMonitored(t)
	var working sync.WaitGroup
	for client := range clients {
		working.Go(func() {
			call := command("CL.THROTTLE", fmt.Sprint("user", client%3), "15", "1", "1000000")
			pipeline := bytes.Repeat(call, calls)
			assert.Len(t, strings.Split(exchange(t, server, pipeline), "*5\r\n"), calls+1)
		})
	}
	done := make(chan struct{})
	go func() {
		working.Wait()
		close(done)
	}()
	allowed := `cellserver_decisions_total{command="cl.throttle",result="allowed"`
	for last, running := 0, true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		_, body := get(t, url+"/metrics")
		now := sumOf(t, strings.ReplaceAll(body, allowed, "allowed{"), "allowed")
		require.GreaterOrEqual(t, now, last)
		last = now
	}
	_, body := get(t, url+"/metrics")
	assert.Equal(t, clients*calls, sumOf(t, body, "cellserver_decisions_total"))
	assert.Contains(t, body, fmt.Sprintf("cellserver_commands_total{command=\"cl.throttle\"} %d\n", clients*calls))
	assert.Contains(t, body, "\ncellserver_keys 3\n")
}

// TestShutdownDelay: after SIGTERM the server is not ready, but serves its clients and accepts new clients,
// until the delay is over or SHUTDOWN ends the server.
func TestShutdownDelay(t *testing.T) {
	server, url := startMonitored(t, "--shutdown-delay", "3600")
	status, body := get(t, url+"/readyz")
	assert.Equal(t, []any{200, "ready\n"}, []any{status, body})
	server.Signal(syscall.SIGTERM)
	for status == 200 { // the signal is on its way
		status, body = get(t, url+"/readyz")
	}
	assert.Equal(t, []any{503, "shutting down\n"}, []any{status, body})
	status, _ = get(t, url+"/healthz")
	assert.Equal(t, 200, status)
	assert.Equal(t, "+PONG\r\n", exchange(t, server, command("PING")))
	conn := dial(t, server)
	_, err := conn.Write(command("SHUTDOWN"))
	require.NoError(t, err)
	assert.Zero(t, server.Wait())
	_, err = http.Get(url + "/readyz")
	assert.Error(t, err)
}

// TestProfiles: profiles are off by default. They are for users that may call DEBUG, and not for
// web pages.
func TestProfiles(t *testing.T) {
	_, url := startMonitored(t)
	status, _ := get(t, url+"/debug/pprof/")
	assert.Equal(t, http.StatusNotFound, status)

	_, url = startMonitored(t, "--metrics-profiles", "yes", "--user", "default on >secret ~* &* +@all",
		"--user", "reader on >secret ~* +@read")
	for _, c := range []struct {
		user, header string
		status       int
	}{
		{"", "", 401}, {"reader", "", 403}, {"nobody", "", 401}, {"default", "", 200},
		{"default", "Origin", 403}, {"default", "Sec-Fetch-Site", 403},
	} {
		for _, path := range []string{"heap", "profile?seconds=1", "trace?seconds=1"} {
			if path != "heap" && c.status != 200 {
				path, _, _ = strings.Cut(path, "?")
			}
			r, err := http.NewRequest(http.MethodGet, url+"/debug/pprof/"+path, nil)
			require.NoError(t, err)
			if c.user != "" {
				r.SetBasicAuth(c.user, "secret")
			}
			if c.header != "" {
				r.Header.Set(c.header, "cross-site")
			}
			response, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			response.Body.Close()
			assert.Equal(t, c.status, response.StatusCode, "%v: %s", c, path)
		}
	}
	status, _ = get(t, strings.Replace(url, "//", "//default:secret@", 1)+"/debug/pprof/cmdline")
	assert.Equal(t, http.StatusNotFound, status)
}

// TestReadiness: a server is not ready while it loads, and with --ready-needs-store while its store does not
// answer.
func TestReadiness(t *testing.T) {
	nowhere := fmt.Sprintf("redis://127.0.0.1:%d", peer.FreePort(t))
	for _, c := range []struct {
		args   []string
		status int
		body   string
	}{
		{nil, 200, "ready\nstore: does not answer\n"},
		{[]string{"--ready-needs-store", "yes"}, 503, "the store does not answer\nstore: does not answer\n"},
		{[]string{"--ready-needs-store", "yes", "--store-fails", "allow"}, 200, "ready\nstore: does not answer\n"},
	} {
		_, url := startMonitored(t, append(c.args, "--store", nowhere, "--loglevel", "nothing")...)
		status, body := get(t, url+"/readyz")
		assert.Equal(t, []any{c.status, c.body}, []any{status, body}, "%q", c.args)
	}
	redis := peer.StartRedis(t)
	_, url := startMonitored(t, "--ready-needs-store", "yes", "--store", "redis://"+redis.Addr, "--store-timeout", "30000")
	peer.Until(t, "the store answers", func() bool { // on a busy machine, it may not answer the first time
		status, body := get(t, url+"/readyz")
		return status == 200 && body == "ready\nstore: answers\n"
	})
	_, body := get(t, url+"/metrics")
	assert.Contains(t, body, "\ncellserver_store_reached 1\n")
}

// TestStoreRoundTrips: each pipeline that a server sends to its store is timed once.
func TestStoreRoundTrips(t *testing.T) {
	const calls = 20
	redis := peer.StartRedis(t)
	server, url := startMonitored(t, "--store", "redis://"+redis.Addr, "--store-timeout", "10000") // on a busy machine too
	scrape := func() (pipelines, trips, bucketed int, seconds float64) {
		_, body := get(t, url+"/metrics")
		value := func(series string) float64 {
			_, rest, found := strings.Cut(body, "\ncellserver_store_"+series+" ")
			require.True(t, found, series)
			text, _, _ := strings.Cut(rest, "\n")
			number, err := strconv.ParseFloat(text, 64)
			require.NoError(t, err, text)
			return number
		}
		return int(value("pipelines_total")), int(value("round_trip_seconds_count")),
			int(value(`round_trip_seconds_bucket{le="+Inf"}`)), value("round_trip_seconds_sum")
	}
	c := client(t, server, 3)
	throttle := func() { require.NoError(t, c.Do(t.Context(), "CL.THROTTLE", "user", 100, 1, 3600).Err()) }
	throttle() // opens the connection to the store
	pipelines, trips, _, seconds := scrape()
	for range calls {
		throttle()
	}
	peer.Until(t, "each pipeline is timed once, when its replies have arrived", func() bool {
		pipelinesThen, tripsThen, bucketed, secondsThen := scrape()
		more := tripsThen - trips
		return more >= calls && more == pipelinesThen-pipelines && bucketed == tripsThen && secondsThen > seconds
	})
}

// TestMetricsWithTLS: --metrics-tls-port by itself serves everything that --metrics-port serves, to peers
// with a certificate. The page's stream works over HTTP/2.
func TestMetricsWithTLS(t *testing.T) {
	port := strconv.Itoa(peer.FreePort(t))
	s := startSecure(t, "--metrics-tls-port", port, "--user", "viewer on >secret +info")
	transport := &http.Transport{TLSClientConfig: s.client.Clone(), ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	url := "https://127.0.0.1:" + port
	for path, part := range map[string]string{"/healthz": "ok", "/readyz": "ready", "/metrics": "cellserver_build_info"} {
		response, err := client.Get(url + path)
		require.NoError(t, err)
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		response.Body.Close()
		assert.Contains(t, string(text), part)
		assert.Equal(t, "HTTP/2.0", response.Proto)
	}
	request, err := http.NewRequestWithContext(t.Context(), "GET", url+"/stream", http.NoBody)
	require.NoError(t, err)
	response, err := client.Do(request)
	require.NoError(t, err)
	response.Body.Close()
	assert.Equal(t, http.StatusUnauthorized, response.StatusCode)
	request.SetBasicAuth("viewer", "secret")
	response, err = client.Do(request)
	require.NoError(t, err)
	line, err := bufio.NewReader(response.Body).ReadString('\n')
	require.NoError(t, err)
	response.Body.Close()
	assert.Contains(t, line, `"user":"\"viewer\""`)

	stranger := &http.Transport{TLSClientConfig: s.authority.Client(t, certs.Pair{})}
	defer stranger.CloseIdleConnections()
	_, err = (&http.Client{Transport: stranger}).Get(url + "/healthz")
	assert.Error(t, err)
}
