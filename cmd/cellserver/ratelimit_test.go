package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What the environment of envoyproxy/ratelimit sets always, and what it sets if it is empty.
const (
	always    = "--port=0 --protected-mode=no --grpc-trusted=0.0.0.0/0 ::/0 "
	byDefault = always + "--bind=* -::* --grpc-port=8081 --envoy-http-port=8080 " +
		"--envoy-config=/srv/runtime_data/current/config"
)

// The environment of envoyproxy/ratelimit becomes options: with nothing set, like the original's defaults; with
// TLS and a control plane; and settings that are refused.
func TestRatelimitArgs(t *testing.T) {
	for environment, want := range map[string]string{
		"": byDefault,
		"GRPC_HOST=127.0.0.1 HOST=127.0.0.1 GRPC_PORT=1 PORT=2 RUNTIME_ROOT=/a RUNTIME_SUBDIRECTORY=b RUNTIME_APPDIRECTORY=c": always +
			"--bind=127.0.0.1 --grpc-port=1 --envoy-http-port=2 --envoy-config=/a/b/c",
		"GRPC_SERVER_USE_TLS=true GRPC_SERVER_TLS_CERT=a GRPC_UDS= NEAR_LIMIT_RATIO=0.29": "--envoy-near-limit=29 --tls-cert-file=a " +
			always + "--bind=* -::* --tls-auth-clients=no --grpc-tls-port=8081 --envoy-http-port=8080 " +
			"--envoy-config=/srv/runtime_data/current/config",
		"GRPC_SERVER_USE_TLS=1 GRPC_CLIENT_TLS_CACERT=a CONFIG_TYPE=GRPC_XDS_SOTW SHADOW_MODE=t LOG_LEVEL=error": "--envoy-shadow=yes " +
			"--loglevel=warning --tls-ca-cert-file=a " + always + "--bind=* -::* --grpc-tls-port=8081 --envoy-http-port=8080 " +
			"--envoy-xds=localhost:18000 --envoy-xds-wait=yes",
		"GRPC_UDS=/s USE_PROMETHEUS=true GRPC_MAX_CONNECTION_AGE=1h": "--grpc-max-connection-age=3600 " + always +
			"--bind=* -::* --grpc-unixsocket=/s --envoy-http-port=8080 --metrics-port=9090 " +
			"--envoy-config=/srv/runtime_data/current/config",
		"GRPC_MAX_CONNECTION_AGE=0":          "--grpc-max-connection-age=31536000 " + byDefault,
		"GRPC_MAX_CONNECTION_AGE=87600h":     "--grpc-max-connection-age=31536000 " + byDefault,
		"GRPC_MAX_CONNECTION_AGE=10ms":       "--grpc-max-connection-age=1 " + byDefault,
		"CONFIG_TYPE=HTTP":                   "CONFIG_TYPE=HTTP: it must be FILE or GRPC_XDS_SOTW",
		"SHADOW_MODE=maybe":                  "SHADOW_MODE=maybe: it must be true or false",
		"PORT=x":                             "PORT=x: invalid syntax",
		"USE_PROMETHEUS=x":                   "USE_PROMETHEUS=x: invalid syntax",
		"NEAR_LIMIT_RATIO=2":                 "NEAR_LIMIT_RATIO=2: it must be from 0 to 1",
		"NEAR_LIMIT_RATIO=NaN":               "NEAR_LIMIT_RATIO=NaN: it must be from 0 to 1",
		"LOG_LEVEL=loud":                     "LOG_LEVEL=loud: it must be trace, debug, info, warn, error, fatal or panic",
		"GRPC_MAX_CONNECTION_AGE=day":        "GRPC_MAX_CONNECTION_AGE=day: it must be a duration, such as 24h",
		"HOST=127.0.0.1":                     "HOST=127.0.0.1: it must be the same as GRPC_HOST, which is 0.0.0.0",
		"USE_PROMETHEUS=1 PROMETHEUS_ADDR=x": "PROMETHEUS_ADDR=x: address x: missing port in address",
		"GRPC_UDS=s GRPC_SERVER_USE_TLS=1":   "GRPC_SERVER_USE_TLS: the socket of GRPC_UDS has no TLS; only users of this machine reach it",
	} {
		args, im, err := ratelimitArgs(strings.Fields(environment))
		if err != nil {
			assert.Equal(t, want, err.Error())
			continue
		}
		assert.Equal(t, want, strings.Join(args, " "), environment)
		assert.Empty(t, im.unused)
		_, err = parseConfig(args, nil)
		require.NoError(t, err)
	}
	unused := []string{"BACKEND_TYPE", "EXPIRATION_JITTER_MAX_SECONDS", "LOCAL_CACHE_SIZE_IN_BYTES", "MEMCACHE_HOST_PORT",
		"REDIS_URL", "STATSD_HOST", "TRACING_ENABLED", "USE_DOG_STATSD", "USE_STATSD"}
	environ := []string{"HOME=b", "PORT=1", "GRPC_SERVER_TLS_CA_CERT=c"}
	for _, name := range unused {
		environ = append(environ, name+"=1")
	}
	_, im, err := ratelimitArgs(environ)
	require.NoError(t, err)
	assert.ElementsMatch(t, unused, im.unused)
}

// Arguments that the original does not know either do not prevent a start.
func TestKnownArgs(t *testing.T) {
	known, unused := knownArgs([]string{"--quotaRateLimitServiceAddr=a.b", "--store", "redis://a", "word", "--dir=x",
		"--unknown", "value", "--", "-p", "--version"})
	assert.Equal(t, []string{"--store", "redis://a", "--dir=x", "--version"}, known)
	assert.Equal(t, []string{"--quotaRateLimitServiceAddr=a.b", "word", "--unknown", "value", "--", "-p"}, unused)
}
