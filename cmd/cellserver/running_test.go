package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/option"
	"cellserver/internal/server"
)

// changes are calls of CONFIG SET in order, with what CONFIG GET shows afterwards and the error of a
// change that is refused.
var changes = []struct{ name, to, shown, refusal string }{
	{"timeout", "7", "7", ""},
	{"timeout", "x", "7", "argument couldn't be parsed into an integer"},
	{"timeout", "-1", "7", "argument must be between 0 and 1073741824 inclusive"},
	{"maxclients", "0", "10000", "argument must be between 1 and 10000000 inclusive"},
	{"loglevel", "verbose", "verbose", ""},
	{"loglevel", "foo", "verbose", "argument(s) must be one of the following: debug, verbose, notice, warning, nothing"},
	{"client-query-buffer-limit", "x", "16777216", "argument must be a memory value"},
	{"client-query-buffer-limit", "1", "16777216", "argument must be between 65536 and 1073741824 inclusive"},
	{"proto-max-bulk-len", "2mb", "2097152", ""},
	{"tcp-keepalive", "10", "10", ""},
	{"client-output-buffer-limit", "foo",
		"normal 268435456 67108864 60 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
		"Wrong number of arguments in buffer limit configuration."},
	{"client-output-buffer-limit", "foo 1 2 3",
		"normal 268435456 67108864 60 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
		"Invalid client class specified in buffer limit configuration."},
	{"client-output-buffer-limit", "normal x 2 3",
		"normal 268435456 67108864 60 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
		"Error in hard, soft or soft_seconds setting in buffer limit configuration."},
	{"client-output-buffer-limit", "normal 1mb 2 3",
		"normal 1048576 2 3 slave 268435456 67108864 60 pubsub 33554432 8388608 60", ""},
	{"client-output-buffer-limit", "replica 3 2mb 1 pubsub 0 0 0", "normal 1048576 2 3 slave 3 2097152 1 pubsub 0 0 0",
		""},
	{"databases", "16", "16", "can't set immutable config"},
	{"tls-port", "0", "0", ""},
	{"port", "6379", "6379", ""},
	{"port", "6380", "6379", "can't set immutable config"},
}

// TestChangesWhileTheServerRuns checks the errors of CONFIG SET for each kind of value, which are
// Redis's, and that a refused change has no effect.
func TestChangesWhileTheServerRuns(t *testing.T) {
	c, err := parseConfig(nil, nil)
	require.NoError(t, err)
	c.server.Transport, c.server.SystemMaxClients = string(server.Goroutines), 20_000
	instance, err := newInstance(t, c)
	require.NoError(t, err)
	c.registerHooks()
	srv, err := server.New(instance, server.Config{Settings: c.server, Options: &c.options})
	require.NoError(t, err)
	t.Cleanup(func() { _ = srv.Shutdown(t.Context()) })
	for _, change := range changes {
		err := c.options.Set([]option.Value{{Name: change.name, Value: change.to}}, false)
		if change.refusal == "" {
			require.NoError(t, err, change.name)
		} else {
			require.EqualError(t, err, change.name+": "+change.refusal)
		}
		require.Equal(t, change.shown, c.options.Show(change.name), change.name)
	}
	require.EqualValues(t, 10, c.network.currentKeepAlive.Load())
	err = c.options.Set([]option.Value{{Name: "maxclients", Value: "20001"}}, false)
	require.ErrorContains(t, err,
		"The operating system is not able to handle the specified number of clients, try with 20000")
}
