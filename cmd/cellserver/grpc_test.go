package main

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
)

// The options of Envoys that need or exclude one another.
func TestEnvoyOptions(t *testing.T) {
	const port, files, plane = "--grpc-port=1", "--envoy-config=none", "--envoy-xds=localhost:1"
	for want, args := range map[string][]string{
		"--grpc-port, --grpc-tls-port and --grpc-unixsocket need --envoy-config: the path of a configuration of " +
			"envoyproxy/ratelimit; or --envoy-xds": {"--grpc-unixsocket=s"},
		"--envoy-config and --envoy-xds cannot be used together":                                {port, files, plane},
		"--envoy-config and --envoy-xds need --grpc-port, --grpc-tls-port or --grpc-unixsocket": {plane},
		"--max-key-size must be at least 1024 with --grpc-port":                                 {port, files, "--max-key-size=1023"},
		`--envoy-xds-metadata: pair 1 is not of the form key=value`:                             {port, plane, "--envoy-xds-metadata=x"},
	} {
		c, err := parseConfig(args, nil)
		require.NoError(t, err)
		require.EqualError(t, c.loadEnvoy(slog.New(slog.DiscardHandler)), want)
	}
	c, err := parseConfig([]string{"--grpc-unixsocket=s", files, "--envoy-merge-domains=yes"}, nil)
	require.NoError(t, err)
	require.NoError(t, c.loadEnvoy(slog.New(slog.DiscardHandler))) // a start needs no good file
	require.True(t, c.envoy.current.IsFailing())
	require.True(t, c.envoy.current.MergeDomains)
}
