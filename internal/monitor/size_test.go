package monitor_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"cellserver/internal/client"
	"cellserver/internal/monitor"
	"cellserver/internal/policy"
	"cellserver/internal/session"
)

// The bounds of the bytes of a scrape: for each command, for the durations of each command that is timed, and for
// everything else; decisions of policies are half of this rest. A new command may add what it needs. Together they are
// about 200 KiB: a monitoring system that scrapes every 15 seconds reads 14 KB a second, of a server on which every
// command is used and fails. Other servers have a quarter of that (TestSizeDoesNotGrow of test/page).
const (
	scrapeOfCommand   = 208
	scrapeOfDurations = 920
	scrapeOfTheRest   = 41 << 10
)

// largest returns an instance whose scrape is as long as possible: every command was called and has failed
// in every way, and as many policies as possible, with the longest names, have decided about keys whose
// names have unusual bytes.
func largest(t testing.TB, keys int) *session.Instance {
	t.Helper()
	var text strings.Builder
	text.WriteString("policies:\n")
	name := func(i int) string { return fmt.Sprintf("%0*d", policy.MaxNameBytes, i) }
	for i := range policy.MaxPolicies {
		fmt.Fprintf(&text, "  '%s': {limits: [{fixed: {limit: 1, period: 60s}}], shadow: %t}\n", name(i), i%2 == 0)
	}
	in, _ := withPolicies(t, text.String())
	var calls strings.Builder
	for i := range keys {
		fmt.Fprintf(&calls, "CL.TAKE \"\\x00\\xff<img src=x>\\n%d\" %s\r\n", i/2, name(i/2%policy.MaxPolicies))
		if calls.Len() > 1<<16 || i == keys-1 {
			call(t, in, strings.TrimSuffix(calls.String(), "\r\n"))
			calls.Reset()
		}
	}
	for i := range len(in.Table.ByName) {
		counts := in.Stats.Of(i)
		for _, count := range []*atomic.Int64{&counts.Calls, &counts.Failed, &counts.Rejected} {
			count.Add(123_456_789)
		}
		for ns := int64(1); ns < 1e12; ns *= 10 {
			counts.Observe(ns)
		}
	}
	return in
}

func TestSize(t *testing.T) {
	in := largest(t, 2*policy.MaxPolicies)
	_, body := get(monitor.New(monitor.Config{Metrics: in.Metrics, Health: &monitor.Health{},
		Log: slog.New(slog.DiscardHandler), Certificates: manyCertificates}), "/metrics")
	t.Log(len(body), "bytes")
	commands, timed := len(in.Table.ByName), strings.Count(body, "\ncellserver_command_duration_seconds_count{")
	assert.Less(t, len(body), commands*scrapeOfCommand+timed*scrapeOfDurations+scrapeOfTheRest)
	assert.Less(t, timed, commands)
	assert.Contains(t, strings.Split(body, "\n"), `cellserver_command_duration_seconds_bucket{command="append",le="+Inf"} 12`)
	assert.Contains(t, body, `policy="_other"`)
	assert.Equal(t, len(monitor.CertificateUses), strings.Count(body, "\ncellserver_tls_certificate_expiry_timestamp_seconds{"))
	assert.Contains(t, body, "\n"+`cellserver_tls_certificate_expiry_timestamp_seconds{use="store-tls-cert-file"} 1.580702706e+09`+"\n")
	assert.NotContains(t, body, "img src")
}

// manyCertificates is what a server has whose options all name files, and something else, which is not shown.
func manyCertificates() map[string]time.Time {
	ends := map[string]time.Time{"<img src=x>": {}}
	for _, use := range monitor.CertificateUses {
		ends[use] = time.Date(2020, 2, 3, 4, 5, 6, 0, time.UTC)
	}
	return ends
}

// BenchmarkScrape measures a scrape of a server with a million keys and 10,000 clients. It must take less than
// 20 ms.
func BenchmarkScrape(b *testing.B) {
	in := largest(b, 2_000_000)
	for range 10_000 {
		s := in.Open(client.Peer{Wake: func() {}, Cut: func() {}})
		b.Cleanup(s.Close)
	}
	h, size := handler(in), 0
	for b.Loop() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		body, _ := io.ReadAll(w.Body)
		size = len(body)
	}
	b.ReportMetric(float64(size), "B/scrape")
	b.ReportMetric(float64(in.Clients.Count()), "clients")
}
