package migrate

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// The page's scripts make the same decisions as the Go code that represents them in the
// comparisons. They run in one transaction, during which Redis's clock stands still.
func TestScriptsOfThePage(t *testing.T) {
	server := dial(t, &redis.Options{Addr: peer.StartRedis(t).Addr})
	for _, s := range scripted() {
		require.NoError(t, server.FlushAll(ctx).Err())
		script := code(t, s.script)
		replies, err := server.TxPipelined(ctx, func(p redis.Pipeliner) error {
			for _, c := range s.calls {
				p.Eval(ctx, script, []string{"user"}, s.arguments(c)...)
			}
			return nil
		})
		require.NoError(t, err)
		var said []bool
		for _, reply := range replies {
			said = append(said, reply.(*redis.Cmd).Val() == int64(1))
		}
		assert.Equal(t, s.on(s.server(newPlace(t))), said, "%s: %s", s.script, s.name)
	}
}

// scriptedTraffic is a script, with the arguments of the Go code that represents it.
type scriptedTraffic struct {
	traffic
	script    string
	server    func(p *place) *redis.Client // the server of the Go code
	arguments func(c call) []any
}

func scripted() (all []scriptedTraffic) {
	second := func(name string, skew time.Duration, calls []call) {
		all = append(all, scriptedTraffic{traffic{name, oldSecond(skew), calls}, "second.lua", (*place).cellserver,
			func(c call) []any {
				now := start + int64(c.at) - int64(skew)*int64(c.client)
				return []any{now / int64(time.Second), c.quantity, 10}
			}})
	}
	permits := func(name string, skew time.Duration, calls []call) {
		all = append(all, scriptedTraffic{traffic{name, oldPermits(skew), calls}, "permits.lua", (*place).redis,
			func(c call) []any {
				now := start + int64(c.at) - int64(skew)*int64(c.client)
				return []any{10, 10, now / int64(time.Millisecond), c.quantity}
			}})
	}
	second("20 a second", 0, every(50*time.Millisecond, 200))
	second("around a second", 0, aroundASecond())
	second("quantities", 0, at(0, 6, 6, 4))
	second("clocks apart", time.Second, ofEach(2, at(0, ones(20)...)))
	permits("burst and rate", 0, burstAndRate())
	permits("one in 50 ms", 0, every(50*time.Millisecond, 400))
	permits("2 in 190 ms", 0, twosIn190ms())
	permits("clocks apart", 2*time.Second, ofEach(2, every(250*time.Millisecond, 80)))
	return all
}
