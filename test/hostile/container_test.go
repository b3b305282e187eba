package hostile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/racetest"
	"cellserver/test/peer"
)

// In a container with 120 MiB, a server without options has a maxmemory of 80 MiB, says so in the first line of
// its log, and refuses keys before the system ends it.
func TestContainerBoundsMemory(t *testing.T) {
	if racetest.Enabled {
		t.Log("the race detector's own memory is not bounded: make test-plain runs this")
		return
	}
	server, enclosed := peer.StartIn(t, 120<<20)
	if !enclosed {
		t.Log("no control group can be made, which needs root: TestContainerMemory of internal/client has the rule")
		return
	}
	assert.Regexp(t, `(?m)^.*msg="cellserver starts" .* maxmemory="80mb, two thirds of the container's memory"$`, server.Log())
	w := watch(t, server)
	require.Equal(t, "83886080", maxMemory(t, w))
	require.NoError(t, w.Do(w.ctx, "CL.FIXED", "known", 5, 3600).Err())
	value := strings.Repeat("x", 1000)
	var refused error
	for round := 0; refused == nil; round++ {
		require.Less(t, round, 200, "memory has no bound")
		_, refused = w.Pipelined(w.ctx, func(p redis.Pipeliner) error {
			for n := range 1000 {
				p.Set(w.ctx, fmt.Sprintf("key:%d:%d", round, n), value, 0)
			}
			return nil
		})
	}
	require.EqualError(t, refused, "OOM command not allowed when used memory > 'maxmemory'.")
	w.limitersContinue(t)
}

// CONFIG REWRITE does not write a maxmemory that comes from the container. It writes one that was set, even if
// that is no bound.
func TestContainerIsNotWritten(t *testing.T) {
	for set, written := range map[string]string{"": "", "0": "maxmemory 0", "7mb": "maxmemory 7mb"} {
		path := filepath.Join(t.TempDir(), "cellserver.conf")
		require.NoError(t, os.WriteFile(path, []byte("databases 16\n"), 0o600))
		server, enclosed := peer.StartIn(t, 120<<20, "--config", path)
		if !enclosed {
			t.Log("no control group can be made, which needs root")
			return
		}
		w := watch(t, server)
		if set != "" {
			require.NoError(t, w.ConfigSet(w.ctx, "maxmemory", set).Err())
		}
		require.NoError(t, w.ConfigRewrite(w.ctx).Err())
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		lines := strings.Split(string(text), "\n")
		assert.Equal(t, written != "", strings.Contains(string(text), "maxmemory"), string(text))
		if written != "" {
			assert.Contains(t, lines, written)
			again, _ := peer.StartIn(t, 120<<20, "--config", path)
			assert.NotEqual(t, "83886080", maxMemory(t, watch(t, again)))
		}
	}
	server, _ := peer.StartIn(t, 120<<20, "--maxmemory", "0")
	assert.Equal(t, "0", maxMemory(t, watch(t, server)))
	assert.Contains(t, server.Log(), " maxmemory=none")
}

func maxMemory(t *testing.T, w *watcher) string {
	t.Helper()
	values, err := w.ConfigGet(w.ctx, "maxmemory").Result()
	require.NoError(t, err)
	return values["maxmemory"]
}
