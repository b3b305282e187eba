package main

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"cellserver/internal/server"
)

func TestDefaults(t *testing.T) {
	c, err := parseConfig(nil, nil)
	require.NoError(t, err)
	require.Equal(t, 6379, c.port)
	require.Equal(t, "127.0.0.1 -::1", c.bind)
	require.Equal(t, 16, c.databases)
	require.Equal(t, 65536, c.maxKeySize)
	require.Equal(t, 1<<20, c.limits().Bulk)
	o := c.server(nil, nil)
	require.True(t, o.Protected)
	require.Equal(t, server.EventLoop, o.Transport)
	require.Equal(t, 10000, o.MaxClients)
	require.Zero(t, o.Timeout)
	require.Equal(t, server.OutputLimit{Hard: 256 << 20, Soft: 64 << 20, SoftFor: time.Minute}, o.Output)
	require.Equal(t, server.OutputLimit{Hard: 32 << 20, Soft: 8 << 20, SoftFor: time.Minute}, o.Listens)
}

// What is wrong is named, with what would be right.
func TestMistakesAreNamed(t *testing.T) {
	for _, mistake := range []struct {
		args []string
		says string
	}{
		{[]string{"--port", "65536"}, `invalid argument "65536" for "--port" flag: it must be a number from 0 to 65535`},
		{[]string{"--port", "x"}, `invalid argument "x" for "--port" flag: it must be a number from 0 to 65535`},
		{[]string{"--databases", "0"}, "it must be a number from 1 to 1024"},
		{[]string{"--proto-max-bulk-len", "1 mb"}, "it must be a size from 1kb to 512mb, written like 65536, 512kb, 64mb or 1gb"},
		{[]string{"--proto-max-bulk-len", "1gb"}, "it must be a size from 1kb to 512mb"},
		{[]string{"--protected-mode", "on"}, "it must be one of yes, no"},
		{[]string{"--transport", "fast"}, "it must be one of event-loop, goroutines"},
		{[]string{"--loglevel", "info"}, "it must be one of debug, verbose, notice, warning, nothing"},
		{[]string{"--unixsocketperm", "999"}, "it must be permissions in octal, such as 770"},
		{[]string{"--client-output-buffer-limit", "normal 1mb"}, `it must be a class (normal, pubsub or replica), a hard limit, a soft limit and seconds, such as "normal 256mb 64mb 60"`},
		{[]string{"--client-output-buffer-limit", "some 1mb 0 0"}, "it must be a class"},
		{[]string{"--nosuch"}, "unknown flag: --nosuch"},
		{[]string{"redis.conf"}, `what is "redis.conf"? Options start with --; see --help`},
	} {
		_, err := parseConfig(mistake.args, nil)
		require.ErrorContains(t, err, mistake.says)
	}
}

// The environment says what the command line does not.
func TestEnvironment(t *testing.T) {
	c, err := parseConfig([]string{"--port", "7000"}, []string{
		"CELLSERVER_PORT=7001", "CELLSERVER_MAX_KEY_SIZE=100", "CELLSERVER_PROTECTED_MODE=no", "PORT=1", "CELLSERVER_NOSUCH=x",
	})
	require.NoError(t, err)
	require.Equal(t, 7000, c.port, "the command line wins")
	require.Equal(t, 100, c.maxKeySize)
	require.Equal(t, "no", c.protectedMode)

	_, err = parseConfig(nil, []string{"CELLSERVER_PORT=x"})
	require.EqualError(t, err, "CELLSERVER_PORT=x: it must be a number from 0 to 65535")
	c, err = parseConfig(nil, []string{"CELLSERVER_PORT=tcp://10.0.0.1:6379"})
	require.NoError(t, err, "Kubernetes says this of a service named cellserver")
	require.Equal(t, 6379, c.port)
}

// Every option can be written as it is shown, so that CONFIG GET and --help say what may be typed.
func TestDefaultsCanBeTyped(t *testing.T) {
	c, err := parseConfig(nil, nil)
	require.NoError(t, err)
	c.flags.VisitAll(func(f *pflag.Flag) {
		require.NotEmpty(t, f.Usage, f.Name)
		require.NoError(t, f.Value.Set(f.Value.String()), f.Name)
		require.Equal(t, f.DefValue, f.Value.String(), f.Name)
	})
}

// Sizes are redis.conf's: 1k is 1000 bytes, 1kb is 1024.
func TestSizes(t *testing.T) {
	for text, bytes := range map[string]int{"0": 0, "17": 17, "17b": 17, "2k": 2000, "2kb": 2048, "3M": 3e6, "3MB": 3 << 20, "1g": 1e9, "1gb": 1 << 30} {
		got, ok := parseSize(text)
		require.True(t, ok, text)
		require.Equal(t, bytes, got, text)
	}
	for _, text := range []string{"", "-1", "1.5mb", "mb", "1tb", "99999999999999999999", "9999999999999gb"} {
		_, ok := parseSize(text)
		require.False(t, ok, text)
	}
	require.Equal(t, "64mb", formatSize(64<<20))
}

// CONFIG GET shows every flag by its own name, sizes in bytes.
func TestSettings(t *testing.T) {
	c, err := parseConfig([]string{"--port", "7000", "--proto-max-bulk-len", "2mb"}, nil)
	require.NoError(t, err)
	got := make(map[string]string)
	for _, s := range c.settings() {
		got[s.Name] = s.Value()
	}
	require.Equal(t, "7000", got["port"])
	require.Equal(t, "2097152", got["proto-max-bulk-len"])
	require.Equal(t, "127.0.0.1 -::1", got["bind"])
	require.Equal(t, "normal 268435456 67108864 60 slave 268435456 67108864 60 pubsub 33554432 8388608 60", got["client-output-buffer-limit"])
	require.NotContains(t, got, "version")
}

// Fewer files than clients: the clients are told, not the accept.
func TestMaxClientsFitsTheFiles(t *testing.T) {
	c := &config{maxClients: 1 << 40}
	warned := ""
	c.fitFiles(func(message string, _ ...any) { warned = message })
	require.Equal(t, openFiles()-64, c.maxClients)
	require.NotEmpty(t, warned)
}
