package snippets

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// A SCAN with a COUNT above 1000 returns about 1000 keys, and a whole scan returns each key once.
func TestScanCountIsCapped(t *testing.T) {
	client := peer.Client(&redis.Options{Addr: peer.Start(t).Addr, ReadTimeout: patience})
	defer client.Close()
	const keys = 5000
	pipe := client.Pipeline()
	for i := range keys {
		pipe.Do(t.Context(), "CL.THROTTLE", fmt.Sprint("key:", i), 0, 1, 1000)
	}
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	seen := map[string]bool{}
	for cursor, more := uint64(0), true; more; more = cursor != 0 {
		var some []string
		some, cursor, err = client.Scan(t.Context(), cursor, "*", keys).Result()
		require.NoError(t, err)
		assert.Less(t, len(some), 1100)
		for _, key := range some {
			assert.False(t, seen[key], "%s is shown twice", key)
			seen[key] = true
		}
	}
	assert.Len(t, seen, keys)
}
