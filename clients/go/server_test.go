package cellserver

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// binary is the server under test: the program in the environment variable CELLSERVER, or a program that is built.
var binary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if binary = os.Getenv("CELLSERVER"); binary != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "cellserver")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "cellserver")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", binary, "./cmd/cellserver")
	build.Dir, build.Stderr = filepath.Join("..", ".."), os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "the server under test:", err)
		return 1
	}
	return m.Run()
}

// server is a cellserver process.
type server struct {
	addr    string
	process *os.Process
}

// start starts a server with the policies of the contract. It ends with the test.
func start(t testing.TB, args ...string) *server {
	t.Helper()
	return startAt(t, freeAddr(), args...)
}

// freeAddr returns an address that nobody listens on. Its port is below those that systems give to connections.
func freeAddr() string {
	for {
		addr := fmt.Sprint("127.0.0.1:", 16384+rand.IntN(16384))
		if l, err := net.Listen("tcp4", addr); err == nil {
			_ = l.Close()
			return addr
		}
	}
}

func startAt(t testing.TB, addr string, args ...string) *server {
	t.Helper()
	_, port, _ := net.SplitHostPort(addr)
	policies, err := filepath.Abs(filepath.Join("..", "contract", "policies.yaml"))
	check(t, err)
	cmd := exec.Command(binary, append([]string{"--port", port, "--policies", policies}, args...)...)
	output, err := cmd.StderrPipe()
	check(t, err)
	check(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "Ready to accept connections") {
			go func() {
				for lines.Scan() { // so that the server's log does not fill the pipe
				}
			}()
			return &server{addr: addr, process: cmd.Process}
		}
	}
	t.Fatal("the server does not start")
	return nil
}

// stop stops the process, until it gets SIGCONT.
func (s *server) stop(t testing.TB) {
	check(t, s.process.Signal(syscall.SIGSTOP))
	var status syscall.WaitStatus
	_, err := syscall.Wait4(s.process.Pid, &status, syscall.WUNTRACED, nil)
	check(t, err)
	if !status.Stopped() {
		t.Fatal("the server ends, and is not stopped")
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// patient are options with which nothing fails because the machine is busy.
func patient(s *server, retries int) *redis.Options {
	return &redis.Options{Addr: s.addr, ReadTimeout: time.Minute, MaxRetries: retries, PoolTimeout: time.Minute}
}

func client(t testing.TB, o *redis.Options) *redis.Client {
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// raw makes calls. Each call is a string of words.
func raw(t testing.TB, s *server, calls ...string) {
	t.Helper()
	rdb := client(t, patient(s, -1))
	for _, c := range calls {
		var words []any
		for _, w := range strings.Fields(c) {
			words = append(words, w)
		}
		check(t, rdb.Do(context.Background(), words...).Err())
	}
}

// listen returns a function that returns the words of the server's next call whose name begins with a prefix.
func listen(t testing.TB, s *server, prefix string) (next func() []string) {
	t.Helper()
	conn, err := net.Dial("tcp4", s.addr)
	check(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	check(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err = conn.Write([]byte("MONITOR\r\n"))
	check(t, err)
	lines := bufio.NewReader(conn)
	_, err = lines.ReadString('\n')
	check(t, err)
	return func() (words []string) {
		t.Helper()
		for {
			line, err := lines.ReadString('\n')
			check(t, err)
			_, quoted, _ := strings.Cut(strings.TrimSpace(line), "] ")
			words = words[:0]
			for quoted != "" {
				word, err := strconv.QuotedPrefix(quoted)
				check(t, err)
				quoted = strings.TrimPrefix(quoted[len(word):], " ")
				word, err = strconv.Unquote(word)
				check(t, err)
				words = append(words, word)
			}
			if len(words) > 0 && strings.HasPrefix(words[0], prefix) {
				return words
			}
		}
	}
}
