package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a server under measurement, pinned to core 0.
type process struct {
	cmd  *exec.Cmd
	port int
}

// start runs a command with a free port added to it, and waits until something answers there.
func start(command []string) (*process, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("taskset", append(append([]string{"-c", "0"}, command...), strconv.Itoa(port))...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd, port}
	for range 100 {
		conn, err := net.DialTimeout("tcp", p.address(), time.Second)
		if err == nil {
			return p, conn.Close()
		}
		time.Sleep(50 * time.Millisecond)
	}
	p.stop()
	return nil, errors.New("did not start")
}

func (p *process) address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)) }

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = p.cmd.Wait()
}

// measure is the microseconds of CPU time that a call costs the server under a load.
func (p *process) measure(l load, call string) (float64, error) {
	before, err := p.cpu()
	if err != nil {
		return 0, err
	}
	if err := l.against(p.port, call); err != nil {
		return 0, err
	}
	after, err := p.cpu()
	return float64((after - before).Microseconds()) / float64(l.calls), err
}

// tick is the unit of /proc/PID/stat: USER_HZ, 100 a second on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// cpu is the time that the process has used, user and system. taskset becomes the server, so its id is the server's.
func (p *process) cpu() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, fields, _ := strings.Cut(string(stat), ") ") // the name before it may hold anything
	f := strings.Fields(fields)
	user, err1 := strconv.ParseInt(f[11], 10, 64)
	system, err2 := strconv.ParseInt(f[12], 10, 64)
	return time.Duration(user+system) * tick, errors.Join(err1, err2)
}
