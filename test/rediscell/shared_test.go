// Package rediscell lets cellserver and redis-cell work on the same keys.
//
// make test-redis-cell builds redis-cell, loads it into a redis-server, and runs these tests with the
// build tag rediscell. Without the tag, recorded keys take the place of redis-cell.
package rediscell

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

func TestMain(m *testing.M) { peer.Main(m) }

var ctx = context.Background()

// patience is the longest time that a test may take. All limits are much slower.
const patience = time.Minute

// storeTimeout is far longer than a call takes on a busy machine. A key of cellserver outlives its
// limit by this time, or by a tenth of a second if that is longer.
const storeTimeout = 30 * time.Second

// recordedFile has redis-cell's calls in TestKeysAreShared: the call, its reply, the key's value and
// expiry afterwards, and the time.
const recordedFile = "testdata/recorded.txt"

// limiter is a server with CL.THROTTLE: cellserver with keys in a redis-server, or redis-cell in it.
type limiter interface {
	// throttle makes a call, which has a key and the numbers after it.
	throttle(t *testing.T, call string) (reply []int64)
}

// connected is a server that is running.
type connected struct{ *redis.Client }

func connect(t *testing.T, s *peer.Server) connected {
	client := peer.Client(&redis.Options{Addr: s.Addr, TLSConfig: s.TLS, Protocol: 2, MaxRetries: -1,
		DisableIdentity: true, ReadTimeout: patience})
	t.Cleanup(func() { _ = client.Close() })
	return connected{client}
}

func (c connected) throttle(t *testing.T, call string) []int64 {
	words := []any{"CL.THROTTLE"}
	for _, word := range strings.Fields(call) {
		words = append(words, word)
	}
	reply, err := c.Do(ctx, words...).Int64Slice()
	require.NoError(t, err, call)
	return reply
}

// onStore starts a cellserver whose keys are in a redis-server, without a prefix.
func onStore(t *testing.T, store *peer.Server) connected {
	timeout := strconv.FormatInt(storeTimeout.Milliseconds(), 10)
	return connect(t, peer.Start(t, "--store", "redis://"+store.Addr, "--store-timeout", timeout))
}

// turn is a call of cellserver or of redis-cell, and its reply. The last two integers of the reply
// are seconds, and smaller if time has passed.
type turn struct {
	by   string
	call string
	want []int64
}

// At one token per hour, no token comes back during the test. The first call of each key takes half an
// hour, so that a small difference between both clocks does not matter.
var turns = []turn{
	{"redis-cell", "a 19 20 36000 1", []int64{0, 20, 19, -1, 1800}},
	{"redis-cell", "a 9 10 36000 3", []int64{0, 10, 6, -1, 12600}},
	{"cellserver", "a 9 10 36000 2", []int64{0, 10, 4, -1, 19800}},
	{"redis-cell", "a 9 10 36000 1", []int64{0, 10, 3, -1, 23400}},
	{"cellserver", "a 9 10 36000 5", []int64{1, 10, 3, 5400, 23400}},
	{"redis-cell", "a 9 10 36000 5", []int64{1, 10, 3, 5400, 23400}},
	{"cellserver", "a 9 10 36000 3", []int64{0, 10, 0, -1, 34200}},
	{"redis-cell", "a 9 10 36000 1", []int64{1, 10, 0, 1800, 34200}},
	{"cellserver", "a 9 10 36000 1", []int64{1, 10, 0, 1800, 34200}},
	{"redis-cell", "a 9 10 36000 -2", []int64{0, 10, 2, -1, 27000}},
	{"cellserver", "a 9 10 36000 1", []int64{0, 10, 1, -1, 30600}},
	{"redis-cell", "a 9 10 36000 0", []int64{0, 10, 1, -1, 30600}},
	{"cellserver", "a 9 10 36000 0", []int64{0, 10, 1, -1, 30600}},
	{"cellserver", "a 9 10 36000 -9", []int64{0, 10, 10, -1, 0}},
	{"redis-cell", "a 9 10 36000 1", []int64{0, 10, 9, -1, 3600}},
	// cellserver makes the first call on a key, and the limits differ.
	{"cellserver", "b 9 2 3600", []int64{0, 10, 9, -1, 1800}},
	{"cellserver", "b 4 1 3600 4", []int64{0, 5, 0, -1, 16200}},
	{"redis-cell", "b 4 1 3600", []int64{1, 5, 0, 1800, 16200}},
	{"redis-cell", "b 9 1 3600", []int64{0, 10, 4, -1, 19800}},
	{"cellserver", "b 9 1 3600 5", []int64{1, 10, 4, 1800, 19800}},
}

// cellserver and redis-cell see what the other has taken, and the keys expire when their limits
// end.
func TestKeysAreShared(t *testing.T) {
	store := startStore(t)
	keys := connect(t, store)
	limiters := map[string]limiter{"redis-cell": newCell(t, keys), "cellserver": onStore(t, store)}
	for i, step := range turns {
		got := limiters[step.by].throttle(t, step.call)
		requireReply(t, step.want, got, "turn %d: %s %s", i, step.by, step.call)
		name, _, _ := strings.Cut(step.call, " ")
		if expires := keys.PExpireTime(ctx, name).Val().Milliseconds(); expires > 0 {
			requireExpiry(t, step, got[0] == 1, stateOf(t, keys, name), expires)
		}
	}
}

// requireReply compares replies, whose times may differ by the duration of a test. redis-cell 0.3 and
// later round times up, to as much as a second more.
func requireReply(t *testing.T, want, got []int64, format string, args ...any) {
	t.Helper()
	what := fmt.Sprintf(format, args...)
	require.Len(t, got, len(want), what)
	require.Equal(t, want[:3], got[:3], what)
	for i := 3; i < len(want); i++ {
		if want[i] <= 0 {
			require.Equal(t, want[i], got[i], what)
			continue
		}
		require.LessOrEqual(t, got[i], want[i]+1, what)
		require.GreaterOrEqual(t, got[i], want[i]-int64(patience.Seconds()), what)
	}
}

// stateOf returns the value of a key: the theoretical arrival time, in Unix nanoseconds.
func stateOf(t *testing.T, keys connected, name string) int64 {
	tat, err := strconv.ParseInt(keys.Get(ctx, name).Val(), 10, 64)
	require.NoError(t, err)
	return tat
}

// requireExpiry compares the expiry of a key, in Unix milliseconds, with its value. redis-cell sets
// the expiry relative to a time that it has read a little earlier. cellserver sets it storeTimeout
// later, because its clock may differ from the store's, and leaves it if nothing changes.
func requireExpiry(t *testing.T, step turn, unchanged bool, tat, expires int64) {
	t.Helper()
	after := expires - (tat+999_999)/1_000_000
	if step.by == "cellserver" && !unchanged && !strings.HasSuffix(step.call, " 0") {
		require.Equal(t, storeTimeout.Milliseconds(), after, step.call)
		return
	}
	require.InDelta(t, 0, after, float64(patience.Milliseconds()), step.call)
}
