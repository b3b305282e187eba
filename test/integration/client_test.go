package integration

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

func TestCall(t *testing.T) {
	eachProtocol(t, func(t *testing.T, c *redis.Client) {
		got, err := c.Do(inTime(t), "CL.THROTTLE", "user123", 15, 30, 60, 1).Int64Slice()
		require.NoError(t, err)
		assert.Equal(t, []int64{0, 16, 15, -1, 2}, got)
	})
}

// The period is so long that no token comes back during the test, so the tokens count down to 0.
func TestPipeline(t *testing.T) {
	eachProtocol(t, func(t *testing.T, c *redis.Client) {
		replies, err := c.Pipelined(inTime(t), func(p redis.Pipeliner) error {
			for range 1000 {
				p.Do(inTime(t), "CL.THROTTLE", "key", 998, 1, 1_000_000, 1)
			}
			return nil
		})
		require.NoError(t, err)
		require.Len(t, replies, 1000)
		for i, reply := range replies[:999] {
			got, err := reply.(*redis.Cmd).Int64Slice()
			require.NoError(t, err)
			require.Equal(t, []int64{0, 999, int64(998 - i), -1}, got[:4])
		}
		got, err := replies[999].(*redis.Cmd).Int64Slice()
		require.NoError(t, err)
		require.Equal(t, []int64{1, 999, 0}, got[:3])
		require.Positive(t, got[3])
	})
}

// An error reply is an error of the client's own type, and the connection stays usable.
func TestErrors(t *testing.T) {
	calls := []struct{ call, want string }{
		{"CL.THROTTLE", "ERR wrong number of arguments for 'cl.throttle' command"},
		{"CL.THROTTLE key 15 30 x", "ERR value is not an integer or out of range: period (units are ms, s, m, h and d)"},
		{"CL.THROTTLE key 15 0 60", "ERR count_per_period must be between 1 and 9223372036854775807"},
		{"CL.THROTTLE key 15 30 60 1 SOON", "ERR syntax error at 'SOON'"},
		{"NOSUCH a", "ERR unknown command 'NOSUCH', with args beginning with: 'a' "},
		{"EVAL x 0", "ERR unknown command 'EVAL', with args beginning with: 'x' '0' "},
		{"CLUSTER SLOTS", "ERR This instance has cluster support disabled"},
		{"SELECT 16", "ERR DB index is out of range"},
		{"AUTH nobody x", "WRONGPASS invalid username-password pair or user is disabled."},
		{"HELLO 4", "NOPROTO unsupported protocol version"},
		{"CLIENT MAINT_NOTIFICATIONS ON", "ERR unknown subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP."},
	}
	eachProtocol(t, func(t *testing.T, c *redis.Client) {
		conn := c.Conn()
		defer conn.Close()
		id, err := conn.ClientID(inTime(t)).Result()
		require.NoError(t, err)
		for _, of := range calls {
			var words []any
			for _, word := range strings.Fields(of.call) {
				words = append(words, word)
			}
			err := conn.Do(inTime(t), words...).Err()
			assert.EqualError(t, err, of.want)
			var refused redis.Error
			assert.True(t, errors.As(err, &refused), "%s: %T", of.call, err)
		}
		again, err := conn.ClientID(inTime(t)).Result()
		require.NoError(t, err)
		assert.Equal(t, id, again)
	})
}

func TestErrorInAPipelineIsOneReply(t *testing.T) {
	eachProtocol(t, func(t *testing.T, c *redis.Client) {
		replies, err := c.Pipelined(inTime(t), func(p redis.Pipeliner) error {
			p.Do(inTime(t), "CL.THROTTLE", "a", 15, 1, 1_000_000, 1)
			p.Do(inTime(t), "CL.THROTTLE", "a", 15, 1, "x", 1)
			p.Do(inTime(t), "CL.THROTTLE", "a", 15, 1, 1_000_000, 1)
			return nil
		})
		assert.EqualError(t, err, "ERR value is not an integer or out of range: period (units are ms, s, m, h and d)")
		got, err := replies[2].(*redis.Cmd).Int64Slice()
		require.NoError(t, err)
		assert.Equal(t, []int64{0, 16, 14, -1}, got[:4])
	})
}

func TestDatabasesAreApart(t *testing.T) {
	server := peer.Start(t)
	zero, two := client(t, server, 3), connect(t, &redis.Options{Addr: server.Addr, TLSConfig: server.TLS, DB: 2})
	for _, c := range []*redis.Client{zero, two} {
		got, err := c.Do(inTime(t), "CL.THROTTLE", "key", 15, 1, 1000, 1).Int64Slice()
		require.NoError(t, err)
		assert.Equal(t, []int64{0, 16, 15, -1, 1000}, got)
	}
	require.NoError(t, two.FlushDB(inTime(t)).Err())
	assert.Zero(t, two.Exists(inTime(t), "key").Val())
	assert.EqualValues(t, 1, zero.Exists(inTime(t), "key").Val())
	assert.EqualValues(t, 1, zero.DBSize(inTime(t)).Val())
}

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	server := peer.Start(t, "--unixsocket", path)
	unix := connect(t, &redis.Options{Network: "unix", Addr: path})
	tcp := client(t, server, 3)
	for i, c := range []*redis.Client{unix, tcp} {
		got, err := c.Do(inTime(t), "CL.THROTTLE", "key", 15, 1, 1000, 1).Int64Slice()
		require.NoError(t, err)
		assert.Equal(t, int64(15-i), got[2], "TCP and the Unix socket must share one store")
	}
	line, err := unix.Do(inTime(t), "CLIENT", "INFO").Text()
	require.NoError(t, err)
	assert.Contains(t, line, "addr="+path+":0 ")
}

func TestUniversalClient(t *testing.T) {
	server := peer.Start(t)
	c := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{server.Addr}, TLSConfig: server.TLS, DB: 1,
		ClientName: "universal", DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience})
	defer c.Close()
	got, err := c.Do(inTime(t), "CL.THROTTLE", "user123", 15, 30, 60, 1).Int64Slice()
	require.NoError(t, err)
	assert.Equal(t, []int64{0, 16, 15, -1, 2}, got)
	require.NoError(t, c.Do(inTime(t), "CL.THROTTLE", "long", 15, 1, 1000, 1).Err())
	keys, _, err := c.Scan(inTime(t), 0, "lon*", 1000).Result()
	require.NoError(t, err)
	assert.Equal(t, []string{"long"}, keys)
	assert.Equal(t, "universal", c.Do(inTime(t), "CLIENT", "GETNAME").Val())
	assert.EqualValues(t, 1, c.Del(inTime(t), "long").Val())
}

// ringOf returns a ring of two servers. By default, a ring repeats a call if there is no reply within three seconds,
// and sends calls to the other server if a server misses three pings.
func ringOf(t *testing.T, a, b *peer.Server) *redis.Ring {
	ring := redis.NewRing(&redis.RingOptions{
		Addrs: map[string]string{"a": a.Addr, "b": b.Addr}, TLSConfig: a.TLS, HeartbeatFrequency: time.Hour,
		DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience,
	})
	t.Cleanup(func() { ring.Close() })
	return ring
}

// A ring asks COMMAND for the position of a call's key, and sends the call to the shard of that
// key.
func TestRingFindsTheKey(t *testing.T) {
	a, b := peer.Start(t), peer.Start(t)
	ring := ringOf(t, a, b)
	for i := range 100 {
		require.NoError(t, ring.Do(inTime(t), "CL.THROTTLE", fmt.Sprint("key", i), 15, 1, 1000, 1).Err())
	}
	ofA, ofB := client(t, a, 3).DBSize(inTime(t)).Val(), client(t, b, 3).DBSize(inTime(t)).Val()
	assert.EqualValues(t, 100, ofA+ofB)
	assert.Positive(t, ofA)
	assert.Positive(t, ofB)
}

// By default, the ring takes the first argument of CL.ALL, the number of its limits, for a key, and sends all calls
// with the same number to one shard. If the ring is told the position of the first key, the call goes to the same
// shard as other calls on that key.
func TestRingAndCallsOfAll(t *testing.T) {
	a, b := peer.Start(t), peer.Start(t)
	ring := ringOf(t, a, b)
	sizes := func() []int64 {
		return []int64{client(t, a, 3).DBSize(inTime(t)).Val(), client(t, b, 3).DBSize(inTime(t)).Val()}
	}
	for i := range 20 {
		key := fmt.Sprintf("{key%d}", i)
		require.NoError(t, ring.Do(inTime(t), "CL.ALL", 2, "FIXED", key+"a", 9, 1000, 1, "FIXED", key+"b", 9, 1000, 1).Err())
	}
	assert.ElementsMatch(t, []int64{0, 40}, sizes())
	require.NoError(t, ring.ForEachShard(inTime(t), func(ctx context.Context, c *redis.Client) error {
		return c.FlushAll(ctx).Err()
	}))
	for i := range 20 {
		key := fmt.Sprintf("{key%d}", i)
		call := redis.NewCmd(inTime(t), "CL.ALL", 2, "FIXED", key+"a", 9, 1000, 1, "FIXED", key+"b", 9, 1000, 1)
		call.SetFirstKeyPos(3)
		require.NoError(t, ring.Process(inTime(t), call))
		assert.EqualValues(t, 1, ring.Exists(inTime(t), key+"b").Val())
	}
	for _, size := range sizes() {
		assert.Positive(t, size)
		assert.Less(t, size, int64(40))
	}
}
