//go:build rediscell

package rediscell

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

var record = flag.Bool("record", false, "record the replies and the keys of redis-cell")

// startStore starts a redis-server with redis-cell, which REDIS_CELL names.
func startStore(t *testing.T) *peer.Server { return startModule(t) }

func startModule(t *testing.T, args ...string) *peer.Server {
	path := os.Getenv("REDIS_CELL")
	require.NotEmpty(t, path, "REDIS_CELL names no module; make test-redis-cell builds it")
	return peer.StartRedis(t, append([]string{"--loadmodule", path}, args...)...)
}

// recorder is redis-cell. With -record, it writes its calls to recordedFile.
type recorder struct {
	connected
	out strings.Builder
}

func newCell(t *testing.T, keys connected) limiter {
	r := &recorder{connected: keys}
	_, version, _ := strings.Cut(keys.Info(ctx, "server").Val(), "redis_version:")
	fmt.Fprintf(&r.out, "# Recorded from redis-cell %s in redis-server %s by make test-redis-cell ARGS=-record.\n"+
		"# Instants are in Unix time: the value in nanoseconds, the others in milliseconds.\n",
		os.Getenv("REDIS_CELL_VERSION"), strings.Fields(version)[0])
	t.Cleanup(func() {
		if *record && !t.Failed() {
			require.NoError(t, os.WriteFile(recordedFile, []byte(r.out.String()), 0o644))
		}
	})
	return r
}

func (r *recorder) throttle(t *testing.T, call string) []int64 {
	reply := r.connected.throttle(t, call)
	name, _, _ := strings.Cut(call, " ")
	// Read the time last, so that when the calls are played later, no key lies further in the
	// future than it did here.
	tat, expires := stateOf(t, r.connected, name), r.PExpireTime(ctx, name).Val().Milliseconds()
	fmt.Fprintf(&r.out, "%s = %s; %d expires %d at %d\n", call, strings.Trim(fmt.Sprint(reply), "[]"), tat, expires,
		r.Time(ctx).Val().UnixMilli()+1)
	return reply
}

// cellserver and redis-cell, called at the same time, together admit exactly what the limit allows.
func TestBothAdmitTogether(t *testing.T) {
	const size, callers, each = 100, 4, 50
	store := startStore(t)
	var admitted [2]atomic.Int64
	var running sync.WaitGroup
	for i, l := range []connected{connect(t, store), onStore(t, store)} {
		for range callers {
			running.Go(func() {
				for range each {
					reply, err := l.Do(ctx, "CL.THROTTLE", "hot", size-1, 1, 1_000_000).Int64Slice()
					if assert.NoError(t, err) && reply[0] == 0 {
						admitted[i].Add(1)
					}
				}
			})
		}
	}
	running.Wait()
	assert.Equal(t, int64(size), admitted[0].Load()+admitted[1].Load(), "%v and %v", &admitted[0], &admitted[1])
}

// import brings redis-cell's keys into memory, and export brings keys from memory to redis-cell.
func TestKeysMove(t *testing.T) {
	const rest, file = "k 9 10 36000 ", "dump.rdb"
	from, memory := startModule(t), peer.StartPlain(t)
	port := fmt.Sprint(memory.Port)
	requireReply(t, []int64{0, 10, 4, -1, 21600}, connect(t, from).throttle(t, rest+"6"), "redis-cell")
	out, err := peer.Command("import", "-p", port, "redis://"+from.Addr).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "imported 1 keys: 0 strings, 1 limiters\n")
	requireReply(t, []int64{1, 10, 4, 3600, 21600}, connect(t, memory).throttle(t, rest+"5"), "cellserver")
	requireReply(t, []int64{0, 10, 2, -1, 28800}, connect(t, memory).throttle(t, rest+"2"), "cellserver")

	dir := t.TempDir()
	out, err = peer.Command("export", "-p", port, filepath.Join(dir, file)).CombinedOutput()
	require.NoError(t, err, "%s", out)
	to := connect(t, startModule(t, "--dir", dir, "--dbfilename", file))
	requireReply(t, []int64{1, 10, 2, 3600, 28800}, to.throttle(t, rest+"3"), "redis-cell")
	requireReply(t, []int64{0, 10, 0, -1, 36000}, to.throttle(t, rest+"2"), "redis-cell")
}
