package integration

import (
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// A store that refuses every change, because its memory is full or its replicas are gone, counts as
// failing: --store-fails makes the decisions, INFO says so, and the log has one line.
func TestStoreThatRefusesIsFailing(t *testing.T) {
	for class, args := range map[string][]string{
		"OOM":        {"--maxmemory", "1"},
		"NOREPLICAS": {"--min-replicas-to-write", "1"},
	} {
		store := peer.StartRedis(t, args...)
		server := peer.Start(t, "--store", "redis://"+store.Addr, "--store-timeout", "30000", "--store-fails", "deny")
		client := connect(t, &redis.Options{Addr: server.Addr, TLSConfig: server.TLS, MaxRetries: -1})
		for range 3 {
			reply := client.Do(inTime(t), "CL.FIXED", "k", "7", "60").Val()
			require.Equal(t, []any{int64(1), int64(7), int64(0), int64(1), int64(1)}, reply, class)
		}
		info := client.Info(inTime(t), "store").Val()
		require.Contains(t, info, "store_failing:1\r\n", class)
		require.Contains(t, info, "store_decisions_limited:3\r\n", class)
		require.ErrorContains(t, client.Set(inTime(t), "k", "v", redis.KeepTTL).Err(), class, "a value is no decision")
		server.Signal(syscall.SIGTERM)
		require.Zero(t, server.Wait())
		require.Regexp(t, `^\S+ level=WARN msg="the store does not make decisions[^\n]*`+class+`[^\n]*\n$`, server.Stderr())
	}
}
