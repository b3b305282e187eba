//go:build linux

package packaging

import (
	"bufio"
	"bytes"
	"debug/elf"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// container is a running image.
type container struct {
	image  *image
	net    *network
	cmd    *exec.Cmd
	ended  chan struct{}
	ready  chan struct{}
	mu     sync.Mutex
	screen bytes.Buffer
	said   bool
}

func (c *container) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.screen.Write(b)
	if !c.said && bytes.Contains(c.screen.Bytes(), []byte(peer.Ready)) {
		c.said = true
		close(c.ready)
	}
	return len(b), nil
}

func (c *container) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.screen.String()
}

// process returns a process in the image: it sees only the image's files and environment, and runs
// as its user.
func (i *image) process(words ...string) *exec.Cmd {
	cmd := &exec.Cmd{Path: words[0], Args: words, Dir: i.dir, Env: append([]string{"PATH=/"}, i.environment...)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: i.root}
	if os.Getenv(insideNamespace) == "" {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(i.user), Gid: uint32(i.group)}
		return cmd
	}
	// The root user of a user namespace can become another user only in a further namespace.
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
	cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: i.user, HostID: 0, Size: 1}}
	cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: i.group, HostID: 0, Size: 1}}
	return cmd
}

// start is docker run: the arguments replace CMD. It returns when the server is ready.
func start(t *testing.T, i *image, n *network, arguments ...string) *container {
	t.Helper()
	if len(arguments) == 0 {
		arguments = i.defaults
	}
	c := &container{image: i, net: n, ended: make(chan struct{}), ready: make(chan struct{})}
	c.cmd = i.process(slices.Concat(i.entrypoint, arguments)...)
	c.cmd.Stdout, c.cmd.Stderr = c, c
	n.do(t, c.cmd.Start)
	go func() {
		_ = c.cmd.Wait() // ProcessState has the exit status
		close(c.ended)
	}()
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill() // fails if it has ended, as it should have
		<-c.ended
	})
	select {
	case <-c.ready:
	case <-c.ended:
		require.Fail(t, "the server ended", c.String())
	case <-time.After(patience):
		require.Fail(t, "the server is not ready", c.String())
	}
	return c
}

// stop is docker stop. It returns the exit status.
func (c *container) stop(t *testing.T) int {
	t.Helper()
	require.NoError(t, c.cmd.Process.Signal(c.image.stop), c.String())
	select {
	case <-c.ended:
	case <-time.After(patience):
		require.Fail(t, "the server does not end", c.String())
	}
	return c.cmd.ProcessState.ExitCode()
}

// healthy runs the image's health check next to the server, as an engine does, and returns its exit
// status.
func (c *container) healthy(t *testing.T) int {
	t.Helper()
	check := c.image.process(c.image.health...)
	c.net.do(t, func() error {
		_ = check.Run() // ProcessState has the exit status
		return nil
	})
	require.NotNil(t, check.ProcessState, "the health check did not start")
	return check.ProcessState.ExitCode()
}

// ask sends PING over the cable, and returns the line of the reply.
func ask(t *testing.T, client *network) (line string) { return send(t, client, "PING") }

// send sends a call over the cable, and returns the first line of the reply.
func send(t *testing.T, client *network, call string) (line string) {
	t.Helper()
	client.do(t, func() error {
		c, err := net.DialTimeout("tcp4", net.JoinHostPort(serverAddress, "6379"), patience)
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience)) // fails only if the connection is closed
		_, _ = c.Write([]byte(call + "\r\n"))       // fails if the server has refused the client; the read shows that
		line, err = bufio.NewReader(c).ReadString('\n')
		return err
	})
	return strings.TrimSpace(line)
}

// filesOfImage are the files of the image, and no others.
var filesOfImage = []string{"bin", "bin/ratelimit", "cellserver", "data", "etc", "etc/ssl", "etc/ssl/certs",
	"etc/ssl/certs/ca-certificates.crt"}

// The image has one program, which is static, for the image's architecture, and has a second name. Besides, the
// image has the certificates of authorities, and a directory for a volume.
func TestImageIsOneStaticBinary(t *testing.T) {
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		i := imageFor(t, arch)
		require.Equal(t, "scratch", i.base)
		require.Equal(t, filesOfImage, filesOf(t, i.root))
		program, err := elf.Open(filepath.Join(i.root, "cellserver"))
		require.NoError(t, err)
		defer program.Close()
		require.Equal(t, machine, program.Machine, arch)
		for _, part := range program.Progs {
			require.NotEqual(t, elf.PT_INTERP, part.Type, "%s asks for a dynamic linker", arch)
			require.NotEqual(t, elf.PT_DYNAMIC, part.Type, "%s is linked dynamically", arch)
		}
		require.Nil(t, program.Section(".symtab"), "%s has symbols: the image is larger than need be", arch)
	}
}

func filesOf(t *testing.T, root string) (names []string) {
	t.Helper()
	require.NoError(t, fs.WalkDir(os.DirFS(root), ".", func(name string, _ fs.DirEntry, err error) error {
		if name != "." {
			names = append(names, name)
		}
		return err
	}))
	return names
}

// The compiler in the image has the version of go.mod.
func TestImageCompiler(t *testing.T) {
	lines := instructions(read(t, "Dockerfile"))
	require.True(t, strings.HasPrefix(lines[0], "FROM "))
	_, rest, _ := strings.Cut(read(t, "go.mod"), "\ngo ")
	numbers := strings.SplitN(rest, ".", 3)
	require.Contains(t, lines[0], " golang:"+numbers[0]+"."+numbers[1]+" ")
}

// Without options the image runs as a user other than root, is healthy while it runs and not
// afterwards, stops when told to, and needs no writable file.
func TestContainer(t *testing.T) {
	i := imageFor(t, runtime.GOARCH)
	require.NotZero(t, i.user, "root")
	require.NotZero(t, i.group, "root")
	require.Contains(t, i.labels, "org.opencontainers.image.version="+version)
	c := start(t, i, newNetwork(t))
	require.Equal(t, 0, c.healthy(t), c.String())
	require.Equal(t, 0, c.stop(t), c.String())
	require.NotEqual(t, 0, c.healthy(t), "a server that has ended is not healthy")
	require.Equal(t, filesOfImage, filesOf(t, i.root))
}

// A container that another user starts as /bin/ratelimit takes the place of envoyproxy/ratelimit: other machines
// reach its health check, which does not depend on a configuration.
func TestContainerAsRatelimit(t *testing.T) {
	i := *imageFor(t, runtime.GOARCH)
	i.user, i.group = 65534, 65534
	i.environment = append(slices.Clone(i.environment), "RUNTIME_ROOT=/data", "LOG_LEVEL=fatal")
	client, server := cable(t)
	c := i.process("/bin/ratelimit")
	server.do(t, c.Start)
	defer func() { _ = c.Process.Kill() }() // fails if it has ended, as it should have
	peer.Until(t, "the server is healthy", func() (healthy bool) {
		client.do(t, func() error {
			socket, err := net.DialTimeout("tcp4", net.JoinHostPort(serverAddress, "8080"), patience)
			if err != nil {
				return nil
			}
			defer socket.Close()
			_ = socket.SetDeadline(time.Now().Add(patience)) // fails only if the connection is closed
			_, _ = socket.Write([]byte("GET /healthcheck HTTP/1.0\r\n\r\n"))
			line, _ := bufio.NewReader(socket).ReadString('\n')
			healthy = strings.HasPrefix(line, "HTTP/1.0 200 ")
			return nil
		})
		return healthy
	})
	require.NoError(t, c.Process.Signal(i.stop))
	require.NoError(t, c.Wait())
}

// An environment variable that changes the port changes it for the health check too.
func TestHealthFollowsPort(t *testing.T) {
	i := *imageFor(t, runtime.GOARCH)
	i.environment = append(slices.Clone(i.environment), "CELLSERVER_PORT=7000")
	c := start(t, &i, newNetwork(t))
	require.Equal(t, 0, c.healthy(t), c.String())
}

// A client on another machine is accepted. The image's settings are environment variables, so that
// options after the image's name do not undo them.
func TestReachedFromOutside(t *testing.T) {
	asItIs := imageFor(t, runtime.GOARCH)
	bare := *asItIs
	bare.environment = nil
	for _, run := range []struct {
		name      string
		image     *image
		arguments []string
		says      string
	}{
		{"the image", asItIs, nil, "+PONG"},
		{"the image, and one option more", asItIs, []string{"--maxclients", "100"}, "+PONG"},
		{"the image, protected again", asItIs, []string{"--protected-mode", "yes"}, "-DENIED"},
		{"for everybody", &bare, []string{"--bind", "* -::*", "--protected-mode", "no"}, "+PONG"},
		{"protected unless told", &bare, []string{"--bind", "* -::*"}, "-DENIED"},
	} {
		t.Run(run.name, func(t *testing.T) {
			client, server := cable(t)
			c := start(t, run.image, server, run.arguments...)
			said, _, _ := strings.Cut(ask(t, client), " ")
			require.Equal(t, run.says, said)
			require.Equal(t, 0, c.healthy(t), "over loopback, the server answers in any case")
			require.Equal(t, 0, c.stop(t), c.String())
		})
	}
}

// With --dir /data, keys survive the container: a second container on the same files has them.
func TestContainerKeepsKeys(t *testing.T) {
	i := imageFor(t, runtime.GOARCH)
	client, server := cable(t)
	c := start(t, i, server, "--dir", "/data")
	require.Equal(t, "+OK", send(t, client, "SET k v"))
	require.Equal(t, 0, c.stop(t), c.String())
	t.Cleanup(func() { emptyData(t, i) })
	c = start(t, i, server, "--dir", "/data")
	require.Equal(t, "$1", send(t, client, "GET k"))
	require.Equal(t, 0, c.stop(t), c.String())
}

// emptyData removes what a container has written, because the image is shared by all tests.
func emptyData(t *testing.T, i *image) {
	t.Helper()
	data := filepath.Join(i.root, "data")
	for _, name := range filesOf(t, data) {
		require.NoError(t, os.RemoveAll(filepath.Join(data, name)))
	}
}
