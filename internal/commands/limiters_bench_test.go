package commands_test

import (
	"bytes"
	"cellserver/internal/commands/commandstest"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkLimiters measures a session's work for one call of each limiter, 64 in flight, on
// 100,000 keys. Each key is called ten times a minute and allows fifteen, so nearly all calls are
// allowed, and a log has ten entries.
func BenchmarkLimiters(b *testing.B) {
	for _, of := range []struct{ name, call string }{
		{"THROTTLE", "CL.THROTTLE k:%015d 14 15 60"},
		{"FIXED", "CL.FIXED k:%015d 15 60"},
		{"SLIDING", "CL.SLIDING k:%015d 15 60"},
		{"SLIDINGLOG", "CL.SLIDINGLOG k:%015d 15 60"},
		{"QUOTA", "CL.QUOTA k:%015d 15 HOUR@Europe/Berlin"},
		{"ACQUIRE", "CL.ACQUIRE k:%015d 15 60 worker-%d"},
		{"ACQUIRE1", "CL.ACQUIRE k:%015d 15 60 worker"},
		{"ALL1", "CL.ALL 1 THROTTLE k:%015d 14 15 60 1"},
		{"ALL", "CL.ALL 2 THROTTLE k:%015d 14 15 60 1 FIXED d:%015[1]d 15 60 1"},
		{"TAKE", "CL.TAKE k:%015d bench"},
		{"TAKE2", "CL.TAKE k:%015d bench2"},
	} {
		b.Run(of.name, func(b *testing.B) { benchmarkLimiter(b, of.call) })
	}
}

// limiterKeys is the number of keys, of 17 bytes each.
const limiterKeys, inFlight = 100_000, 64

func benchmarkLimiter(b *testing.B, call string) {
	server := commandstest.New(b)
	client := server.Connect()
	random := rand.New(rand.NewPCG(1, 1))
	batches := make([][]byte, 4*limiterKeys/inFlight)
	for i := range batches {
		var batch bytes.Buffer
		for range inFlight {
			words := fmt.Appendf(nil, call, random.IntN(limiterKeys), random.IntN(10))
			words, _, _ = bytes.Cut(words, []byte("%!(EXTRA"))
			batch.Write(commandstest.Encode(strings.Fields(string(words))))
		}
		batches[i] = batch.Bytes()
	}
	feed := func(batch []byte) {
		client.Session.Feed(batch)
		for client.Session.HasUnanswered() {
			client.Session.Resume()
		}
		client.Session.Sent()
		server.Clock.Advance(inFlight * time.Minute / (10 * limiterKeys))
	}
	for range 2 * 10 * limiterKeys / inFlight { // two minutes; the first is not typical
		feed(batches[random.IntN(len(batches))])
	}
	client.Session.Feed(batches[0])
	require.NotContains(b, client.Output(), "ERR")
	b.ReportAllocs()
	played, before := 0, used(b)
	for b.Loop() {
		feed(batches[played%len(batches)])
		played++
	}
	b.ReportMetric(float64(used(b)-before)/float64(played*inFlight), "cpu-ns/call")
}

// used returns the CPU time of this process so far. Elapsed time would include that of other
// processes.
func used(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
