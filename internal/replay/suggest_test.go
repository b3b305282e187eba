package replay

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/policy"
	"cellserver/internal/racetest"
)

// planted is traffic of subjects that use a limit to the full for some minutes, again and again, and of scrapers.
func planted(t *testing.T, burst, perMinute float64, subjects, scrapers int) (log string) {
	type event struct {
		ms   int64
		text string
	}
	var events []event
	random := rand.New(rand.NewPCG(1, uint64(burst)))
	add := func(ms float64, subject string) {
		text := fmt.Sprintf("%d.%03d %s\n", 1_790_000_000+int64(ms)/1000, int64(ms)%1000, subject)
		events = append(events, event{int64(ms), text})
	}
	for s := range subjects {
		for visit := range 2 {
			begun, tokens := float64(visit)*2e7+random.Float64()*1e7, burst
			for now := 0.0; now < 300e3; {
				if tokens >= 1 {
					tokens--
					add(begun+now, fmt.Sprint("10.0.0.", s))
				} else {
					now += 1.01 * (1 - tokens) * 60e3 / perMinute
					tokens = 1
				}
			}
		}
	}
	for s := range scrapers {
		for i := range 10_000 {
			add(1e7+float64(i)*50, fmt.Sprint("192.0.2.", s))
		}
	}
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.ms, b.ms) })
	var out strings.Builder
	for _, e := range events {
		out.WriteString(e.text)
	}
	return write(t, "access.log", out.String())
}

var suggested = regexp.MustCompile(`throttle: \{burst: (\d+), rate: (\d+)/1(\w)\}`)

// suggest runs the subcommand, and returns the limit that it found, as a burst and a rate per minute. The file must be
// valid.
func suggest(t *testing.T, args ...string) (burst, perMinute float64, text string) {
	t.Helper()
	var out, stderr strings.Builder
	status := Run("suggest", args, testEnvironment(&out, &stderr))
	require.Zero(t, status, stderr.String())
	_, err := policy.Parse([]policy.File{{Name: "s.yaml", Text: []byte(out.String())}}, policy.Options{})
	require.NoError(t, err)
	m := suggested.FindStringSubmatch(out.String())
	require.NotNil(t, m, out.String())
	burst, err = strconv.ParseFloat(m[1], 64)
	require.NoError(t, err)
	perMinute, err = strconv.ParseFloat(m[2], 64)
	require.NoError(t, err)
	return burst, perMinute * map[string]float64{"s": 60, "m": 1, "h": 1.0 / 60}[m[3]], out.String()
}

// A limit that most subjects use to the full is found, within 5 %, although scrapers need much more.
func TestPlantedLimitIsFound(t *testing.T) {
	racetest.HasOneGoroutine(t)
	for _, limit := range [][2]float64{{40, 100}, {20, 300}} {
		log := planted(t, limit[0], limit[1], 99, 1)
		burst, perMinute, text := suggest(t, "--format", "$msec $remote_addr", log)
		require.InEpsilon(t, limit[0], burst, 0.05, text)
		require.InEpsilon(t, limit[1], perMinute, 0.05, text)
		require.Contains(t, text, "192.0.2.0")
		require.Contains(t, text, `from: "{client_ip}"`)

		burst, perMinute, text = suggest(t, "--format", "$msec $remote_addr", "--limited-subjects", "0%", log)
		require.Greater(t, burst+perMinute, 1000.0, "one scraper makes any number absurd")
		require.Contains(t, text, "Nobody is left out")
	}
}

// If a limit is suggested that should limit a part of the requests, replaying it limits no more
// than this part.
func TestSuggestedShareIsKept(t *testing.T) {
	racetest.HasOneGoroutine(t)
	log := planted(t, 40, 100, 15, 1)
	for _, part := range []string{"0%", "1%", "10%"} {
		_, _, text := suggest(t, "--format", "$msec $remote_addr", "--limited", part, log)
		allowed, err := strconv.ParseFloat(strings.TrimSuffix(part, "%"), 64)
		require.NoError(t, err)
		policies := write(t, "p.yaml", text)
		r := reportOf(t, policies, "--format", "$msec $remote_addr", log)
		require.LessOrEqual(t, float64(r.Limited), allowed/100*float64(r.Requests), text)
		require.Contains(t, strings.ReplaceAll(text, "\n# ", " "), "Replay: "+r.Headline)
	}
}

// The burst that a subject needs is exact: with one less, a request is limited.
func TestPeaksAreExact(t *testing.T) {
	var out, stderr strings.Builder
	e := testEnvironment(&out, &stderr)
	s := suggestion{o: options{memory: 1 << 30, sample: 1, files: []string{planted(t, 9, 77, 9, 1)}}}
	s.o.reading.Subject, s.o.reading.Format, s.o.reading.Zone = "{client_ip}", "$msec $remote_addr", time.UTC
	var err error
	s.log, err = s.o.openLog(&e)
	require.NoError(t, err)
	defer s.log.Close()
	require.NoError(t, s.read(&e))
	s.traffic = newTraffic(s.events, s.log.Subjects())
	for _, r := range append(ladder, between(rate{1, time.Minute}, rate{3, time.Second})...) {
		burst := s.traffic.burstForSubjects(r, 0)
		require.Zero(t, s.traffic.limited(r, burst), r)
		require.Positive(t, s.traffic.limited(r, burst-1), r)
	}
}

// Subjects of headers are hidden, and the from of a policy is written only if a server understands it.
func TestSuggestForOtherSubjects(t *testing.T) {
	text := ""
	for i := range 60 {
		text += fmt.Sprintf(`{"time":"2026-11-23T10:%02d:00Z","http_x_key":"key%d","user":{"id":"u"}}`+"\n", i, i%3)
	}
	log := write(t, "json.log", text)
	_, _, file := suggest(t, "--subject", "{header.X-Key}", "--limited-subjects", "50%", log)
	require.Contains(t, file, `from: "{header.X-Key}"`)
	require.NotContains(t, file, "key1")
	_, _, file = suggest(t, "--subject", "{json.user.id}", log)
	require.NotContains(t, file, "from:")
	for args, says := range map[string]string{"": "needs a log", "--horizon 1ms x": "--horizon",
		"--json x": "unknown flag", "--limited 1% --limited-subjects 1% x": "give one"} {
		var out, stderr strings.Builder
		require.Equal(t, misused, Run("suggest", strings.Fields(args), testEnvironment(&out, &stderr)))
		require.Contains(t, stderr.String(), says)
	}
	var out, stderr strings.Builder
	for _, option := range [][2]string{{"--policy", "x: 1\n"}, {"--maxmemory", "1kb"}} {
		args := []string{"--subject", "x", option[0], option[1], log}
		require.Equal(t, failed, Run("suggest", args, testEnvironment(&out, &stderr)))
	}
	require.Contains(t, stderr.String(), "--sample 1/16")
	require.NoError(t, os.Remove(log))
}
