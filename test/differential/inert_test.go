package differential

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	rows "cellserver/internal/commands"
	"cellserver/test/peer"
)

// Numeric directives without effect here have Redis's defaults, keep the value that they are set to, and refuse
// what Redis refuses.
func TestInertOptionsAreRedis(t *testing.T) {
	clients := map[string]*redis.Client{
		"cellserver": peer.Client(&redis.Options{Addr: peer.StartPlain(t).Addr}),
		"redis":      peer.Client(&redis.Options{Addr: peer.StartRedis(t).Addr}),
	}
	inert := 0
	for _, o := range rows.NewSettings().Options() {
		if o.Kind.Type() != "inert" {
			continue
		}
		inert++
		ask := func(words ...any) {
			says := map[string]string{}
			for name, c := range clients {
				reply, err := c.Do(t.Context(), words...).Result()
				if err != nil {
					reply = err.Error()
				}
				says[name] = fmt.Sprint(reply)
			}
			assert.Equal(t, says["redis"], says["cellserver"], "%v", words)
		}
		ask("CONFIG", "GET", o.Name)
		before, err := strconv.Atoi(o.Kind.Show())
		require.NoError(t, err, o.Name)
		ask("CONFIG", "SET", o.Name, before+1)
		ask("CONFIG", "GET", o.Name)
		ask("CONFIG", "SET", o.Name, "x")
		ask("CONFIG", "GET", o.Name)
	}
	assert.Greater(t, inert, 15)
}
