package integration

import (
	"net"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// rueidis caches what DoCache reads. It drops a value when another client changes the key, when the key expires,
// and when everything is flushed. rueidis runs with its defaults, except that it waits longer for replies.
func TestRueidisCaches(t *testing.T) {
	for _, transport := range []string{"event-loop", "goroutines"} {
		t.Run(transport, func(t *testing.T) {
			server := peer.Start(t, "--transport", transport)
			cached, other := rueidisTo(t, server), rueidisTo(t, server)
			get := func() (value string, hit bool) {
				r := cached.DoCache(t.Context(), cached.B().Get().Key("k").Cache(), time.Hour)
				value, err := r.ToString()
				if !rueidis.IsRedisNil(err) {
					require.NoError(t, err)
				}
				return value, r.IsCacheHit()
			}
			becomes := func(want string) {
				t.Helper()
				require.Eventually(t, func() bool { value, _ := get(); return value == want }, patience, time.Millisecond)
				require.Eventually(t, func() bool { value, hit := get(); return hit && value == want }, patience, time.Millisecond)
			}
			do := func(command rueidis.Completed) {
				t.Helper()
				require.NoError(t, other.Do(t.Context(), command).Error())
			}
			do(other.B().Set().Key("k").Value("one").Build())
			becomes("one")
			do(other.B().Set().Key("k").Value("two").Px(50 * time.Millisecond).Build())
			becomes("")
			do(other.B().Set().Key("k").Value("three").Build())
			becomes("three")
			do(other.B().Flushall().Build())
			becomes("")
		})
	}
}

func rueidisTo(t *testing.T, server *peer.Server) rueidis.Client {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{server.Addr}, TLSConfig: server.TLS,
		Dialer: net.Dialer{Timeout: patience}, ConnWriteTimeout: patience,
	})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

// rueidis subscribes, and receives what another client publishes.
func TestRueidisSubscribes(t *testing.T) {
	server := peer.Start(t)
	listening, other := rueidisTo(t, server), rueidisTo(t, server)
	heard := make(chan string, 1)
	go func() {
		_ = listening.Receive(t.Context(), listening.B().Psubscribe().Pattern("n*").Build(), func(m rueidis.PubSubMessage) {
			heard <- m.Channel + " " + m.Message
		})
	}()
	require.Eventually(t, func() bool {
		n, err := other.Do(t.Context(), other.B().Publish().Channel("news").Message("hello").Build()).AsInt64()
		return assert.NoError(t, err) && n == 1
	}, patience, time.Millisecond)
	assert.Equal(t, "news hello", <-heard)
}
