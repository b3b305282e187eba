package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDefaults(t *testing.T) {
	c, err := parseConfig(nil)
	require.NoError(t, err)
	require.Equal(t, 6379, c.port)
	require.Equal(t, "127.0.0.1 -::1", c.bind)
	require.Equal(t, 16, c.databases)
	require.Equal(t, 65536, c.maxKeySize)
	require.Equal(t, 1<<20, c.limits().Bulk)
}

func TestMistakesAreNamed(t *testing.T) {
	for _, mistake := range []struct {
		args []string
		says string
	}{
		{[]string{"--port", "65536"}, "--port 65536: must be between 0 and 65535"},
		{[]string{"--port", "x"}, `invalid argument "x" for "--port"`},
		{[]string{"--databases", "0"}, "--databases 0: must be between 1 and 1024"},
		{[]string{"--proto-max-bulk-len", "1 mb"}, "write a number of bytes, or 512kb, 64mb, 1gb"},
		{[]string{"--proto-max-bulk-len", "1gb"}, "--proto-max-bulk-len 1073741824: must be between 1024 and 536870912"},
		{[]string{"--nosuch"}, "unknown flag: --nosuch"},
		{[]string{"redis.conf"}, `what is "redis.conf"? Options start with --; see --help`},
	} {
		_, err := parseConfig(mistake.args)
		require.ErrorContains(t, err, mistake.says)
	}
}

// Sizes are redis.conf's: 1k is 1000 bytes, 1kb is 1024.
func TestSizes(t *testing.T) {
	for text, bytes := range map[string]size{"0": 0, "17": 17, "17b": 17, "2k": 2000, "2kb": 2048, "3M": 3e6, "3MB": 3 << 20, "1g": 1e9, "1gb": 1 << 30} {
		var s size
		require.NoError(t, s.Set(text), text)
		require.Equal(t, bytes, s, text)
	}
	for _, text := range []string{"", "-1", "1.5mb", "mb", "1tb", "99999999999999999999", "99999999999gb"} {
		var s size
		require.Error(t, s.Set(text), text)
	}
	s := size(64 << 20)
	require.Equal(t, "64mb", s.String())
}

// CONFIG GET shows every flag by its own name, sizes in bytes.
func TestSettings(t *testing.T) {
	c, err := parseConfig([]string{"--port", "7000", "--proto-max-bulk-len", "2mb"})
	require.NoError(t, err)
	got := make(map[string]string)
	for _, s := range c.settings() {
		got[s.Name] = s.Value()
	}
	require.Equal(t, "7000", got["port"])
	require.Equal(t, "2097152", got["proto-max-bulk-len"])
	require.Equal(t, "127.0.0.1 -::1", got["bind"])
	require.NotContains(t, got, "version")
}
