package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// process is the server process, and a connection that reads its INFO.
type process struct {
	addr     string
	cmd      *exec.Cmd
	ended    chan struct{}
	log      journal
	watcher  *redis.Client
	received string // the number of connections received
	extras   *extras
}

// figures are measurements by the system and by the server.
type figures struct {
	resident                   int64 // bytes
	files, threads, goroutines int
	clients                    string
}

func (f figures) String() string {
	return fmt.Sprintf("%d MiB resident, %d files, %d threads, %d goroutines, %s clients",
		f.resident>>20, f.files, f.threads, f.goroutines, f.clients)
}

func launch(binary, transport string, more *extras) (*process, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := l.Addr().String()
	l.Close()
	_, port, _ := net.SplitHostPort(addr)
	p := &process{addr: addr, ended: make(chan struct{}), extras: more}
	args := []string{"--port", port, "--bind", "127.0.0.1", "--transport", transport, "--loglevel", "warning"}
	if more == nil {
		args = append(args, "--policies", policiesFile)
	} else {
		args = append(args, more.args()...)
	}
	p.cmd = exec.Command(binary, args...)
	p.cmd.Stderr = &p.log
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait() // ProcessState has the result
		close(p.ended)
	}()
	p.watcher = connect(addr, 3)
	return p, p.within(settles, "the server replies",
		func() bool { return p.watcher.Ping(context.Background()).Err() == nil })
}

// within waits until a condition is true.
func (p *process) within(limit time.Duration, what string, holds func() bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	held := false
	err := paced(ctx, 10*time.Millisecond, func() error {
		if p.crashes() > 0 {
			return p.crash()
		}
		if held = holds(); held {
			cancel()
		}
		return nil
	})
	if err == nil && !held {
		err = fmt.Errorf("waited %s, but this did not happen: %s", limit, what)
	}
	return err
}

func (p *process) crashes() int {
	select {
	case <-p.ended:
		return 1
	default:
		return 0
	}
}

func (p *process) crash() error {
	return fmt.Errorf("the server ended: %s\n%s", p.cmd.ProcessState, p.log.String())
}

// alone waits until the observer is the server's only client.
func (p *process) alone() error {
	var last figures
	var failed error
	err := p.within(settles, "the connections of the other clients end", func() bool {
		last, failed = p.measure()
		return failed == nil && last.clients == "1"
	})
	if err != nil {
		err = fmt.Errorf("%w; %s", errors.Join(err, failed), last)
	}
	return err
}

// measure reads INFO and the system's figures. A panic of a command is in the log, and counts as a
// crash.
func (p *process) measure() (f figures, err error) {
	if p.crashes() > 0 {
		return f, p.crash()
	}
	if strings.Contains(p.log.String(), "panicked") {
		return f, errors.New(p.log.String())
	}
	text, err := p.watcher.Info(context.Background()).Result()
	if err != nil {
		return f, fmt.Errorf("INFO: %w", err)
	}
	p.received = field(text, "total_connections_received")
	f.clients = field(text, "connected_clients")
	f.goroutines, _ = strconv.Atoi(field(text, "goroutines"))
	dir := fmt.Sprintf("/proc/%d/", p.cmd.Process.Pid)
	status, err := os.ReadFile(dir + "status")
	if err != nil {
		return f, err
	}
	kilobytes, _ := strconv.ParseInt(field(string(status), "VmRSS"), 10, 64)
	f.resident = kilobytes << 10
	f.threads, _ = strconv.Atoi(field(string(status), "Threads"))
	files, err := os.ReadDir(dir + "fd")
	f.files = len(files)
	return f, err
}

// field returns the first word after a name and a colon at the beginning of a line.
func field(text, name string) string {
	_, rest, _ := strings.Cut(text, "\n"+name+":")
	words := strings.Fields(rest)
	if len(words) == 0 {
		return ""
	}
	return words[0]
}

// stop ends the server with SIGTERM. The server must end with status 0.
func (p *process) stop() error {
	p.watcher.Close()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return p.crash()
	}
	select {
	case <-p.ended:
	case <-time.After(30 * time.Second):
		return errors.New("the server has not ended")
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("exit status %d after SIGTERM\n%s", code, p.log.String())
	}
	return nil
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails if it has ended, as it should have
	<-p.ended
}

// journal keeps the end of the server's log, and everything about a panic.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

const journalBytes = 1 << 20

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.text.Len() > journalBytes && !bytes.Contains(j.text.Bytes(), []byte("panicked")) {
		j.text.Reset()
	}
	j.text.Write(b)
	return len(b), nil
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}
