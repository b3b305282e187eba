package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// When a start fails, the log file says why, in its format, and standard error says so too.
func TestFailedStartIsLogged(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	err := run([]string{"--port", "0", "--logfile", file, "--log-format", "json"})
	require.ErrorContains(t, err, "no listeners")
	require.NotErrorAs(t, err, new(logged), "standard error is told too")
	text, readErr := os.ReadFile(file)
	require.NoError(t, readErr)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	var last struct{ Level, Msg, Error string }
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &last))
	assert.Equal(t, "ERROR the server ends because of an error", last.Level+" "+last.Msg)
	assert.Contains(t, last.Error, "no listeners")
}

// A start that fails leaves no sockets behind.
func TestFailedStartClosesItsListeners(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "s")
	err = run([]string{"--port", "0", "--unixsocket", path, "--metrics-port", port,
		"--logfile", filepath.Join(t.TempDir(), "log")})
	require.ErrorContains(t, err, "address already in use")
	assert.NoFileExists(t, path)
}

// On standard error, the error is a line of JSON, or a line of text, and not both.
func TestFailureIsReportedOnce(t *testing.T) {
	failure := errors.New("planted")
	for format, isLogged := range map[string]bool{"json": true, "text": false} {
		var out bytes.Buffer
		err := (&logOptions{format: format}).report(slog.New(slog.NewTextHandler(&out, nil)), failure)
		require.ErrorIs(t, err, failure)
		assert.Equal(t, isLogged, errors.As(err, new(logged)), format)
		assert.Equal(t, isLogged, strings.Contains(out.String(), "planted"), format)
	}
	require.NoError(t, (&logOptions{format: "json"}).report(slog.New(slog.DiscardHandler), nil))
	quiet := (&logOptions{format: "json"}).report(slog.New(slog.DiscardHandler), failure)
	require.NotErrorAs(t, quiet, new(logged), "a log that is off has nothing")
}

func TestReadyIsAnnouncedOnce(t *testing.T) {
	var listeners []net.Listener
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		listeners = append(listeners, l)
	}
	var out bytes.Buffer
	announce(append(listeners, tlsListener{listeners[0]}), slog.New(slog.NewTextHandler(&out, nil)))
	assert.Equal(t, 1, strings.Count(out.String(), "Ready to accept connections tcp"))
	assert.Equal(t, 1, strings.Count(out.String(), "Ready to accept connections tls"))
}

func TestPageWithoutItsPort(t *testing.T) {
	for _, port := range []int{0, 9121} {
		var out bytes.Buffer
		c := newConfig()
		c.monitor.page.Open, c.monitor.port = "yes", port
		c.warn(slog.New(slog.NewTextHandler(&out, nil)))
		assert.Equal(t, port == 0, strings.Contains(out.String(), "--page-open has no effect"))
	}
}
