//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cellserver/bench/load"
)

// cores are the two cores of a run: one for the server, the other for the load and this program.
type cores struct {
	server, load unix.CPUSet
	serverNumber int
}

// twoCores returns the first two cores that this program may run on.
func twoCores() (c cores, err error) {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return c, err
	}
	var found []int
	for core := 0; core < len(allowed)*64 && len(found) < 2; core++ {
		if allowed.IsSet(core) {
			found = append(found, core)
		}
	}
	if len(found) < 2 {
		return c, errors.New("two cores are needed, one for the server and one for the load")
	}
	c.serverNumber = found[0]
	c.server.Set(found[0])
	c.load.Set(found[1])
	return c, nil
}

// keepToLoad moves every thread of this program to the load's core. New threads and processes
// inherit it.
func (c cores) keepToLoad() error {
	runtime.GOMAXPROCS(1)
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(id, &c.load); err != nil && err != unix.ESRCH { // the thread may have ended
			return err
		}
	}
	return nil
}

// process is a server under measurement.
type process struct {
	cmd    *exec.Cmd
	tcp    load.Target
	socket load.Target
	dir    string // in place of {dir}
	output bytes.Buffer
	ended  chan struct{}
}

// startsWithin is how long a server may take to listen.
const startsWithin = 10 * time.Second

// start runs a command on the server's core, with a free port and a socket in dir, and waits until
// it listens.
func (c cores) start(ctx context.Context, command []string, dir string) (*process, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	p := &process{
		tcp:    load.Target{Network: "tcp", Address: net.JoinHostPort("127.0.0.1", port)},
		socket: load.Target{Network: "unix", Address: filepath.Join(dir, port+".sock")},
		dir:    filepath.Join(dir, port+".state"),
		ended:  make(chan struct{}),
	}
	fill := strings.NewReplacer("{port}", port, "{socket}", p.socket.Address, "{dir}", p.dir)
	words := make([]string, len(command))
	for i, word := range command {
		words[i] = fill.Replace(word)
	}
	p.cmd = exec.Command(words[0], words[1:]...)
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	if err := c.launch(p.cmd); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait() // its exit status does not matter
		close(p.ended)
	}()
	if err := p.listens(ctx); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

// launch starts a server on the server's core, which it inherits from this thread. The server is in
// a process group of its own, so that Ctrl-C does not reach it, and is killed if this program ends.
func (c cores) launch(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.SchedSetaffinity(0, &c.server); err != nil {
		return err
	}
	return errors.Join(cmd.Start(), unix.SchedSetaffinity(0, &c.load))
}

func (p *process) listens(ctx context.Context) error {
	for end := time.Now().Add(startsWithin); time.Now().Before(end); {
		// With --dir, a server answers PING only when it has loaded its keys.
		if reply, err := load.Ask(p.tcp, "PING"); err == nil && reply == "PONG" {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("%s ended at once: %s", p.cmd.Path, bytes.TrimSpace(p.output.Bytes()))
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return fmt.Errorf("%s does not listen on %s", p.cmd.Path, p.tcp.Address)
}

func freePort() (string, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port), nil
}

// stop ends the server: with SIGTERM, and with SIGKILL after 5 seconds.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails if it has ended
	select {
	case <-p.ended:
	case <-time.After(5 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// kill ends the server with SIGKILL.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails if it has ended
	<-p.ended
}

func (p *process) id() int { return p.cmd.Process.Pid }
