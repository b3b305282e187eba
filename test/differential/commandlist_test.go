package differential

import (
	"context"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// listed returns the names in COMMAND LIST, and the names of commands and subcommands in COMMAND,
// both sorted.
func listed(t *testing.T, server *peer.Server) (listed, described []string) {
	client := peer.Client(&redis.Options{Addr: server.Addr, TLSConfig: server.TLS, Protocol: 2})
	defer client.Close()
	listed, err := client.Do(context.Background(), "COMMAND", "LIST").StringSlice()
	require.NoError(t, err)
	rows, err := client.Do(context.Background(), "COMMAND").Slice()
	require.NoError(t, err)
	var add func(rows []any)
	add = func(rows []any) {
		for _, row := range rows {
			fields := row.([]any)
			described = append(described, fields[0].(string))
			add(fields[9].([]any))
		}
	}
	add(rows)
	slices.Sort(listed)
	slices.Sort(described)
	return listed, described
}

// COMMAND LIST lists the commands of COMMAND, including subcommands, as in Redis.
func TestCommandListIsComplete(t *testing.T) {
	for name, server := range map[string]*peer.Server{"redis-server": peer.StartRedis(t), "cellserver": peer.Start(t)} {
		list, described := listed(t, server)
		assert.Equal(t, described, list, name)
	}
}
