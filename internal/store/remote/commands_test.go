package remote_test

import (
	"context"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"cellserver/internal/commands"
	"cellserver/internal/server"
	"cellserver/internal/store/remote"
)

// serve starts a cellserver in this process, and returns its address.
func serve(t *testing.T, config commands.Config) string {
	instance, err := commands.New(config)
	require.NoError(t, err)
	settings := server.NewSettings()
	settings.Transport = string(server.Goroutines)
	s, err := server.New(instance, server.Config{Settings: settings})
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	t.Cleanup(func() {
		require.NoError(t, s.Shutdown(context.Background()))
		require.ErrorIs(t, <-served, server.ErrClosed)
	})
	return listener.Addr().String()
}

// dialRemote returns a client of a cellserver whose keys are in a table.
func dialRemote(t *testing.T, r *rig) *redis.Client {
	c := redis.NewClient(&redis.Options{
		Addr: serve(t, commands.Config{Store: r.store}), Protocol: 2, DisableIdentity: true, MaxRetries: -1,
	})
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// In a cluster, MGET and MSET are split, and calls that must be one step are refused if their keys
// are in several slots.
func TestCommandsInACluster(t *testing.T) {
	r := newRig(t, remote.Options{Slot: func(key string) int { return int(key[0]) }})
	c := dialRemote(t, r)
	require.NoError(t, c.MSet(ctx, "a1", "1", "b1", "2", "b2", "3", "a2", "4").Err())
	require.Equal(t, []any{"3", nil, "1", "4", "2"}, c.MGet(ctx, "b2", "none", "a1", "a2", "b1").Val())
	require.Equal(t, int64(3), c.Del(ctx, "a1", "b1", "a2", "none").Val())
	require.Equal(t, int64(1), c.Exists(ctx, "a1", "b1", "b2").Val())
	for _, refused := range []redis.Cmder{
		c.MSetNX(ctx, "a", "1", "b", "2"), c.Rename(ctx, "b2", "a"),
		c.Do(ctx, "CL.ALL", "2", "THROTTLE", "a", "4", "1", "60", "1", "THROTTLE", "b", "4", "1", "60", "1"),
	} {
		require.ErrorContains(t, refused.Err(), "CROSSSLOT", refused.Args())
	}
	_, err := c.TxPipelined(context.Background(), func(p redis.Pipeliner) error {
		p.Incr(ctx, "a")
		p.Incr(ctx, "b")
		return nil
	})
	require.ErrorContains(t, err, "CROSSSLOT")
	require.Equal(t, "", r.get("a")+r.get("b"))
}

// Calls that need an ability that the store does not have are refused.
func TestCommandsThatAreRefused(t *testing.T) {
	r := newRig(t, remote.Options{})
	r.set("k", "v")
	c := dialRemote(t, r)
	for _, call := range [][]any{{"SWAPDB", 0, 1}, {"MOVE", "k", 1}, {"COPY", "k", "l", "DB", 1}} {
		require.Error(t, c.Do(ctx, call...).Err(), call)
	}
	require.Equal(t, "v", c.Get(ctx, "k").Val())
}
