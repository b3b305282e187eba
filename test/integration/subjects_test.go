package integration

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// awkward are subjects that would share keys, or have keys in several slots, if keys contained them unescaped.
var awkward = []string{
	"}x", "{}", "a}b", "%7D", "}", "{", "{x}", "", "x", "%7Dx", "a%7Db", "%7B%7D", "%", "%25", "-", "a", "a\x00", "\x00",
	"a b", "a\r\nb", "a\x7f", "\xff", strings.Repeat("s", 256), strings.Repeat("s", 257), strings.Repeat("s", 300),
	strings.Repeat("s", 299) + "t", "%#",
}

// In a cluster, all keys of a subject are in one slot, whatever bytes the subject contains, and no two subjects
// share a key. So each subject has its own count, and a call with two policies and their bans is one step.
func TestSubjectsOnACluster(t *testing.T) {
	cluster := peer.StartCluster(t, peer.StartRedis, 3, false, nil)
	c := withPolicies(t, `
  one: {limits: [{throttle: {burst: 100, rate: 1/100h}}, {fixed: {limit: 1000, period: 100h}}]}
  two: {limits: [{sliding: {limit: 1, period: 100h}}, {quota: {limit: 1000, per: 100000h}}],
        ban: {after: 2, within: 1h, for: 100h}}
`, "--store", cluster.URL(), "--store-timeout", "30000")
	for i, subject := range awkward {
		got, err := c.Do(inTime(t), "CL.TAKE", subject, "one", i+1).Int64Slice()
		require.NoError(t, err, "%q", subject)
		assert.Equal(t, []int64{0, 100, int64(100 - i - 1)}, got[:3], "%q", subject)
		_, err = c.Do(inTime(t), "CL.ALL", 2, "TAKE", subject, "one", 1, "TAKE", subject, "two", 1).Result()
		require.NoError(t, err, "%q", subject)
	}
	for i, subject := range awkward {
		got, err := c.Do(inTime(t), "CL.TAKE", subject, "one", 0).Int64Slice()
		require.NoError(t, err, "%q", subject)
		assert.Equal(t, int64(100-i-2), got[2], "%q", subject)
		if i%2 == 0 {
			require.NoError(t, c.Do(inTime(t), "CL.TAKE", subject, "two").Err())
			require.NoError(t, c.Do(inTime(t), "CL.TAKE", subject, "two").Err())
		}
	}
	bans, err := c.Do(inTime(t), "CL.BANS", "two", 1000).Slice()
	require.NoError(t, err)
	assert.Len(t, bans, (len(awkward)+1)/2, "every other subject is banned")
}

// However many calls come at once, a policy with a burst of 20 lets 20 pass.
func TestBurstOfAPolicy(t *testing.T) {
	c := withPolicies(t, "\n  api: {limits: [{throttle: {burst: 20, rate: 1/100h}}, {quota: {limit: 1000, per: 100000h}}]}\n")
	var allowed atomic.Int64
	require.NoError(t, together(8, func(int) error {
		for range 10 {
			got, err := c.Do(inTime(t), "CL.TAKE", "alice", "api").Int64Slice()
			if err != nil {
				return err
			}
			allowed.Add(1 - got[0])
		}
		return nil
	}))
	assert.EqualValues(t, 20, allowed.Load())
}

// withPolicies starts a server with policies, and returns a client.
func withPolicies(t *testing.T, policies string, args ...string) *redis.Client {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policies.yaml")
	require.NoError(t, os.WriteFile(file, []byte("policies:"+policies), 0o600))
	server := peer.Start(t, append([]string{"--policies", file}, args...)...)
	return connect(t, &redis.Options{Addr: server.Addr, TLSConfig: server.TLS, MaxRetries: -1})
}
