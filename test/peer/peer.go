// Package peer starts the servers of tests, each in a process of its own: the cellserver binary,
// and a real redis-server.
package peer

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/racetest"
)

// Version is the version of the cellserver under test.
const Version = "1.2.3"

// Ready is the text that both servers print when they listen.
const Ready = "Ready to accept connections"

// patience is the longest wait for a server. It is far longer than a server needs on a busy
// machine.
const patience = time.Minute

// Servers is the environment variable with the directory of the binaries that `make test` builds
// once for all packages: cellserver, and cellserver-race. Without it, each package builds its own,
// and the build counts against the time limit of its tests.
const Servers = "CELLSERVER_TEST_SERVERS"

// scratch is a package's temporary directory, and binary the cellserver under test.
var scratch, binary string

// Main prepares the cellserver under test, runs a package's tests, and removes temporary files. A
// TestMain only calls it.
func Main(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if scratch, err = os.MkdirTemp("", "cellserver"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(scratch)
	if binary, err = built(os.Getenv(Servers)); err != nil {
		fmt.Fprintln(os.Stderr, "the cellserver under test:", err)
		return 1
	}
	return m.Run()
}

// built returns the binary in a directory, or builds one if there is no directory.
func built(dir string) (string, error) {
	if dir != "" {
		path := filepath.Join(dir, "cellserver")
		if racetest.Enabled {
			path += "-race"
		}
		_, err := os.Stat(path)
		return path, err
	}
	path := filepath.Join(scratch, "cellserver")
	args := []string{"build", "-buildvcs=false", "-ldflags=-X main.version=" + Version, "-o", path}
	if racetest.Enabled {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "cellserver/cmd/cellserver")...)
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	return path, build.Run()
}

// Server is a process that listens.
type Server struct {
	Addr string // of its TCP listener
	Port int
	TLS  *tls.Config // what its clients need; nil if they need none

	bus int // port of the bus of a node of a cluster

	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr screen
	ended          chan struct{}
	mayExit        bool // Wait was called, so the test judges how the process ended
}

// Start starts cellserver on a free port. When the test ends, the server is told to stop, and must
// end with exit status 0 and no warning in its log.
func Start(t *testing.T, args ...string) *Server {
	t.Helper()
	return StartLogging(t, nil, args...)
}

// StartLogging is Start with the test's own file, such as a pipe, as the server's stderr. By default the
// server logs only warnings to it.
func StartLogging(t *testing.T, stderr *os.File, args ...string) *Server {
	t.Helper()
	listen, client := door(t)
	s := start(t, func(port int) *exec.Cmd {
		if stderr == nil {
			return Command(slices.Concat(listen(port), args)...)
		}
		cmd := Command(slices.Concat(listen(port), []string{"--loglevel", "warning"}, args)...)
		cmd.Stderr = stderr
		return cmd
	})
	if s.TLS = client; client != nil {
		secured.Store(s.Addr, client)
		t.Cleanup(func() { secured.Delete(s.Addr) })
	}
	return s
}

// StartPlain is Start without TLS, whatever the environment says.
func StartPlain(t *testing.T, args ...string) *Server {
	t.Helper()
	return start(t, func(port int) *exec.Cmd {
		return Command(slices.Concat([]string{"--port", strconv.Itoa(port)}, args)...)
	})
}

// StartRedis starts a real redis-server on a free port. If it is not installed, the test fails: a
// skipped comparison must not look like a successful one.
func StartRedis(t *testing.T, args ...string) *Server {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	require.NoError(t, err, "this test asks a real redis-server (7.0.15): install it")
	return startRedis(t, path, args)
}

// StartRedis8 starts a redis-server of version 8.4 or later, which the environment variable
// REDIS8_SERVER names.
func StartRedis8(t *testing.T, args ...string) *Server {
	t.Helper()
	path := os.Getenv("REDIS8_SERVER")
	require.NotEmpty(t, path, "REDIS8_SERVER names no redis-server; make test-redis8 fetches one")
	return startRedis(t, path, args)
}

func startRedis(t *testing.T, path string, args []string) *Server {
	t.Helper()
	dir := t.TempDir()
	return start(t, func(port int) *exec.Cmd {
		return exec.Command(path,
			append([]string{"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir, "--save", "",
				"--appendonly", "no"}, args...)...)
	})
}

// start tries a few ports, because another process may take a free port before the server does.
func start(t *testing.T, command func(port int) *exec.Cmd) *Server {
	t.Helper()
	for range 5 {
		port := FreePort(t)
		s := Launch(t, command(port))
		s.Addr, s.Port = net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), port
		select {
		case <-s.isReady():
			t.Cleanup(s.check)
			return s
		case <-s.ended:
			if !strings.Contains(s.Log()+s.Stdout(), "in use") {
				require.Fail(t, "the server ended", "%s%s", s.Stdout(), s.Log())
			}
		case <-time.After(patience):
			require.Fail(t, "the server is not ready", "%s%s", s.Stdout(), s.Log())
		}
	}
	require.Fail(t, "no free port")
	return nil
}

// Command returns a command that runs cellserver with these arguments, for Launch or to be run by
// itself.
func Command(args ...string) *exec.Cmd {
	cmd := exec.Command(binary, args...)
	cmd.Env = environment()
	return cmd
}

// Launch starts a process. It is killed at the end of the test if it is still running.
func Launch(t *testing.T, cmd *exec.Cmd) *Server {
	t.Helper()
	s := &Server{t: t, cmd: cmd, ended: make(chan struct{})}
	s.stdout.ready, s.stderr.ready = make(chan struct{}), make(chan struct{})
	if cmd.Stdout == nil {
		cmd.Stdout = &s.stdout
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &s.stderr
	}
	cmd.Env = environment()
	require.NoError(t, cmd.Start())
	go func() {
		_ = cmd.Wait() // ProcessState has the exit status
		close(s.ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // fails if it has ended, as it should have
		<-s.ended
	})
	return s
}

// environment returns the test's environment without the variables for tests, which a server would take
// for unknown options. It also removes the second for which a program with the race detector sleeps
// before it exits.
func environment() []string {
	own := slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "CELLSERVER_TEST_") })
	return append(own, "GORACE=atexit_sleep_ms=0")
}

// check ends a server at the end of its test.
func (s *Server) check() {
	if s.mayExit {
		return
	}
	s.Signal(syscall.SIGTERM)
	assert.Equal(s.t, 0, s.Wait(), "exit status after SIGTERM; stderr: %s", s.Stderr())
	assert.Empty(s.t, withoutExpected(s.Stderr()), "stderr")
}

// expected matches warnings that tests may cause: that maxmemory is exceeded, here or in a store, and that a store
// has not answered a new connection within a second, because the machine is busy.
var expected = regexp.MustCompile(
	`(?m)^.* msg="(?:maxmemory is exceeded|the store does not make decisions:[^"]*".* error="OOM |` +
		`store: no connection" .*error="[^"]*(?:deadline exceeded|i/o timeout)).*\n`)

// withoutExpected removes the expected warnings from a log.
func withoutExpected(log string) string { return expected.ReplaceAllString(log, "") }

// Stop ends a server before the end of its test, as check does.
func (s *Server) Stop() {
	s.check()
	s.mayExit = true
}

// Signal sends the process a signal.
func (s *Server) Signal(signal os.Signal) {
	require.NoError(s.t, s.cmd.Process.Signal(signal), "the server ended by itself; stderr: %s", s.Stderr())
}

// PID returns the number of the process.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Wait waits for the process to end and returns its exit status, -1 if a signal ended it.
func (s *Server) Wait() int {
	s.mayExit = true
	select {
	case <-s.ended:
	case <-time.After(patience):
		require.Fail(s.t, "the server does not end", "stderr: %s", s.Stderr())
	}
	return s.cmd.ProcessState.ExitCode()
}

// Stdout returns what the process has printed so far.
func (s *Server) Stdout() string { return s.stdout.String() }

// Log returns what the process has written to stderr so far.
func (s *Server) Log() string { return s.stderr.String() }

// Stderr returns Log without lines at the level INFO.
func (s *Server) Stderr() string { return information.ReplaceAllString(s.Log(), "") }

// information matches a line of the log at the level INFO.
var information = regexp.MustCompile(`(?m)^time=\S+ level=INFO .*\n`)

// screen keeps what is printed, and signals when the server is ready.
type screen struct {
	mu    sync.Mutex
	text  bytes.Buffer
	ready chan struct{}
	said  bool
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(b)
	if !s.said && bytes.Contains(s.text.Bytes(), []byte(Ready)) {
		s.said = true
		close(s.ready)
	}
	return len(b), nil
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}
