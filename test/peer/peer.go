// Package peer starts the servers that tests speak to, each a process of its own: cellserver as it
// is built, and a real redis-server.
package peer

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Version is what the cellserver under test says it is.
const Version = "1.2.3"

// Ready is what both servers print once they listen.
const Ready = "Ready to accept connections"

// patience is how late a server may be with anything: far more than it needs on a busy machine.
const patience = 30 * time.Second

// Servers is the environment variable that names the directory of cellserver as `make test` builds
// it once for all packages: cellserver, and cellserver-race. Without it each package builds its
// own, which counts against the time that its tests have.
const Servers = "CELLSERVER_TEST_SERVERS"

// scratch is a package's temporary directory, and binary the cellserver under test.
var scratch, binary string

// Main sees to the cellserver under test, runs a package's tests, and removes what was made.
// TestMain is nothing but a call of it.
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

// built is the cellserver in a directory, or one that is built now if there is none.
func built(dir string) (string, error) {
	if dir != "" {
		path := filepath.Join(dir, "cellserver")
		if Race {
			path += "-race"
		}
		_, err := os.Stat(path)
		return path, err
	}
	path := filepath.Join(scratch, "cellserver")
	args := []string{"build", "-buildvcs=false", "-ldflags=-X main.version=" + Version, "-o", path}
	if Race {
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

	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr screen
	ended          chan struct{}
	mayExit        bool // Wait was called: how it ended is the test's to judge
}

// Start starts cellserver on a free port. When the test ends it is told to stop, and must then do
// so with exit status 0 and without having said anything on stderr.
func Start(t *testing.T, args ...string) *Server {
	t.Helper()
	return StartLogging(t, nil, args...)
}

// StartLogging is Start of a server whose stderr is a file of the test's, such as a pipe.
func StartLogging(t *testing.T, stderr *os.File, args ...string) *Server {
	t.Helper()
	listen, client := door(t)
	s := start(t, func(port int) *exec.Cmd {
		cmd := Command(slices.Concat(listen(port), []string{"--loglevel", "warning"}, args)...)
		if stderr != nil {
			cmd.Stderr = stderr
		}
		return cmd
	})
	if s.TLS = client; client != nil {
		secured.Store(s.Addr, client)
		t.Cleanup(func() { secured.Delete(s.Addr) })
	}
	return s
}

// StartPlain is Start of a server that is spoken to plainly, whatever the environment says.
func StartPlain(t *testing.T, args ...string) *Server {
	t.Helper()
	return start(t, func(port int) *exec.Cmd {
		return Command(slices.Concat([]string{"--port", strconv.Itoa(port), "--loglevel", "warning"}, args)...)
	})
}

// StartRedis starts a real redis-server on a free port. Without one installed the test fails: a
// comparison that is not made must not look like one that went well.
func StartRedis(t *testing.T, args ...string) *Server {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	require.NoError(t, err, "this test asks a real redis-server (7.0.15): install it")
	return startRedis(t, path, args)
}

// StartRedis8 starts a redis-server of version 8.4 or later, which the environment names:
// REDIS8_SERVER.
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

// start tries a few ports: between finding one free and listening on it somebody else may take it.
func start(t *testing.T, command func(port int) *exec.Cmd) *Server {
	t.Helper()
	for range 5 {
		port := FreePort(t)
		s := Launch(t, command(port))
		s.Addr, s.Port = net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), port
		select {
		case <-s.stdout.ready:
			t.Cleanup(s.check)
			return s
		case <-s.ended:
			if !strings.Contains(s.Stderr()+s.Stdout(), "in use") {
				require.Fail(t, "the server ended", "%s%s", s.Stdout(), s.Stderr())
			}
		case <-time.After(patience):
			require.Fail(t, "the server is not ready", "%s%s", s.Stdout(), s.Stderr())
		}
	}
	require.Fail(t, "no free port")
	return nil
}

// Command is cellserver with these arguments, for Launch.
func Command(args ...string) *exec.Cmd { return exec.Command(binary, args...) }

// Launch starts a process as it is. It is killed at the end of the test if it still runs.
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
	// The race detector makes a process wait a second before it ends, unless told.
	cmd.Env = append(environment(), "GORACE=atexit_sleep_ms=0")
	require.NoError(t, cmd.Start())
	go func() {
		_ = cmd.Wait() // ProcessState tells
		close(s.ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // fails if it has ended, as it should have
		<-s.ended
	})
	return s
}

// environment is the test's own, but for what is said to tests: a server would take that for
// options that it does not have.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "CELLSERVER_TEST_") })
}

// check ends a server that the test was done with.
func (s *Server) check() {
	if s.mayExit {
		return
	}
	s.Signal(syscall.SIGTERM)
	assert.Equal(s.t, 0, s.Wait(), "exit status after SIGTERM; stderr: %s", s.Stderr())
	assert.Empty(s.t, s.Stderr(), "stderr")
}

// Signal sends the process a signal.
func (s *Server) Signal(signal os.Signal) {
	require.NoError(s.t, s.cmd.Process.Signal(signal), "the server ended by itself; stderr: %s", s.Stderr())
}

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

// Stdout is what the process has printed so far.
func (s *Server) Stdout() string { return s.stdout.String() }

// Stderr is what the process has complained of so far.
func (s *Server) Stderr() string { return s.stderr.String() }

// FreePort finds a port that nobody listens on.
func FreePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// screen keeps what is printed, and says when it is that the server is ready.
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
