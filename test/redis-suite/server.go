package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// server is a process that the suite is run against.
type server struct {
	port  int
	cmd   *exec.Cmd
	ended atomic.Bool
	done  chan struct{}
}

func startCell(binary string) (*server, error) {
	return start(func(port string) *exec.Cmd {
		// "Very big payload" sends an argument of 4 MB.
		return exec.Command(binary, "--port", port, "--loglevel", "warning", "--io-threads", "1", "--enable-debug-command",
			"local",
			"--proto-max-bulk-len", "8mb")
	})
}

func startRedis(dir string) (*server, error) {
	return start(func(port string) *exec.Cmd {
		return exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "",
			"--enable-debug-command", "local")
	})
}

// start starts a server on a free port, and returns when it listens. There are a few attempts,
// because another process may take a free port before the server does.
func start(command func(port string) *exec.Cmd) (*server, error) {
	for range 5 {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		s := &server{port: port, cmd: command(strconv.Itoa(port)), done: make(chan struct{})}
		ready, err := s.start()
		if err != nil {
			return nil, err
		}
		if ready {
			return s, nil
		}
	}
	return nil, errors.New("no server has started")
}

func freePort() (int, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// start reports whether the server listens. If not, it has ended.
func (s *server) start() (bool, error) {
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return false, err
	}
	complaints, err := s.cmd.StderrPipe()
	if err != nil {
		return false, err
	}
	go func() {
		for lines := bufio.NewScanner(complaints); lines.Scan(); {
			if line := lines.Text(); !strings.Contains(line, begins) { // the suite makes the server log which test begins
				fmt.Fprintln(os.Stderr, line)
			}
		}
	}()
	if err := s.cmd.Start(); err != nil {
		return false, err
	}
	ready := make(chan bool, 2)
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); { // a full pipe would block the server
			if strings.Contains(lines.Text(), "Ready to accept connections") {
				ready <- true
			}
		}
		_ = s.cmd.Wait() // it was killed, or alive reports that it has ended
		s.ended.Store(true)
		close(s.done)
		ready <- false
	}()
	return <-ready, nil
}

func (s *server) alive() error {
	if s.ended.Load() {
		return fmt.Errorf("the server has ended: %v", s.cmd.ProcessState)
	}
	return nil
}

func (s *server) kill() {
	_ = s.cmd.Process.Kill() // fails if it has ended
	<-s.done
}

// commandsOf returns the commands of a server; subcommands as "client|id".
func commandsOf(ctx context.Context, port int) (map[string]bool, error) {
	client := redis.NewClient(&redis.Options{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Protocol: 2})
	defer client.Close()
	rows, err := client.Do(ctx, "command").Slice()
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	var add func(rows []any)
	add = func(rows []any) {
		for _, row := range rows {
			fields := row.([]any)
			known[fields[0].(string)] = true
			add(fields[9].([]any))
		}
	}
	add(rows)
	return known, nil
}
