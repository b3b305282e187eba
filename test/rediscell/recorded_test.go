//go:build !rediscell

package rediscell

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

func startStore(t *testing.T) *peer.Server { return peer.StartRedis(t) }

// recordings plays the recorded calls of redis-cell: it writes the keys as redis-cell wrote them.
type recordings struct {
	keys  connected
	lines []string // the calls that have not yet been made
}

func newCell(t *testing.T, keys connected) limiter {
	text, err := os.ReadFile(recordedFile)
	require.NoError(t, err)
	r := &recordings{keys: keys}
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") {
			r.lines = append(r.lines, strings.TrimSpace(line))
		}
	}
	t.Cleanup(func() { require.Empty(t, r.lines, "calls that were recorded, but not made") })
	return r
}

func (r *recordings) throttle(t *testing.T, call string) (reply []int64) {
	require.NotEmpty(t, r.lines, "make test-redis-cell ARGS=-record records %s", call)
	made, rest, _ := strings.Cut(r.lines[0], " = ")
	require.Equal(t, call, made, "make test-redis-cell ARGS=-record")
	r.lines = r.lines[1:]
	reply = make([]int64, 5)
	var tat, expires, at int64
	_, err := fmt.Sscanf(rest, "%d %d %d %d %d; %d expires %d at %d",
		&reply[0], &reply[1], &reply[2], &reply[3], &reply[4], &tat, &expires, &at)
	require.NoError(t, err, rest)
	later := r.keys.Time(ctx).Val().UnixMilli() - at
	name, _, _ := strings.Cut(call, " ")
	require.NoError(t, r.keys.Do(ctx, "SET", name, tat+later*1_000_000, "PXAT", expires+later).Err())
	return reply
}
