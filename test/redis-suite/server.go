package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
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
		return exec.Command(binary, "--port", port, "--io-threads", "1", "--enable-debug-command", "local",
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

// start reports whether the server listens. If it does not, it has ended. Redis logs to standard output.
// cellserver logs to standard error, and its warnings are shown.
func (s *server) start() (bool, error) {
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return false, err
	}
	log, err := s.cmd.StderrPipe()
	if err != nil {
		return false, err
	}
	if err := s.cmd.Start(); err != nil {
		return false, err
	}
	ready, read := make(chan bool, 2), sync.WaitGroup{}
	read.Go(func() { eachLine(out, ready, func(string) {}) })
	read.Go(func() { eachLine(log, ready, warn) })
	go func() {
		read.Wait()
		_ = s.cmd.Wait() // it was killed, or has ended, which alive reports
		s.ended.Store(true)
		close(s.done)
		ready <- false
	}()
	return <-ready, nil
}

// eachLine reads all that a server prints, because a full pipe would block it.
func eachLine(from io.Reader, ready chan<- bool, do func(line string)) {
	for lines := bufio.NewScanner(from); lines.Scan(); {
		if strings.Contains(lines.Text(), "Ready to accept connections") {
			ready <- true
		}
		do(lines.Text())
	}
}

// warn shows a line of the log, unless its level is INFO or it is the suite's own line about the test
// that begins.
func warn(line string) {
	if !strings.Contains(line, " level=INFO ") && !strings.Contains(line, begins) {
		fmt.Fprintln(os.Stderr, line)
	}
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
