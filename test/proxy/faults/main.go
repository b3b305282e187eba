// Command faults tests clients in other languages. It starts two servers on one store, with a proxy in front of one
// of them, which makes connections fail as networks do, and makes the servers fail.
//
//	faults path/to/cellserver
//
// It prints the proxy's port. After it has read a line, it causes no more faults, and prints how often it has caused
// each. It ends when its input ends.
package main

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"cellserver/test/proxy"
)

// pause is the time between two faults. After faultsUntilCalm faults there is a calm. It is longer than the time
// after which clients try a failed server again: without it, each of their tries would meet a fault.
const pause, calm, faultsUntilCalm = 20 * time.Millisecond, 250 * time.Millisecond, 5

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
}

// world is the servers and the proxy that the clients under test use.
type world struct {
	binary  string
	proxy   *proxy.Proxy
	servers [2]*process
	current int // the server behind the proxy
	done    map[string]int
	random  *rand.Rand
}

// process is a server.
type process struct {
	addr string
	cmd  *exec.Cmd
}

func run(binary string) (err error) {
	w := &world{binary: binary, done: map[string]int{}, random: rand.New(rand.NewPCG(1, 2))}
	redis, err := start(func(port string) *exec.Cmd {
		return exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
	})
	if err != nil {
		return err
	}
	defer redis.end()
	for i := range w.servers {
		w.servers[i], err = start(func(port string) *exec.Cmd {
			return exec.Command(binary, "--port", port, "--store", "redis://"+redis.addr)
		})
		if err != nil {
			return err
		}
		defer func() { w.servers[i].end() }()
	}
	if w.proxy, err = proxy.Start(w.servers[0].addr); err != nil {
		return err
	}
	defer w.proxy.Close()
	_, port, _ := net.SplitHostPort(w.proxy.Addr)
	fmt.Println(port)
	input, over := bufio.NewScanner(os.Stdin), make(chan struct{})
	go func() {
		input.Scan()
		close(over)
	}()
	for n := 1; !ended(over, pause); n++ {
		if err := w.strike(over); err != nil {
			return err
		}
		if n%faultsUntilCalm == 0 {
			ended(over, calm)
		}
	}
	fmt.Println(w.counts())
	for input.Scan() {
	}
	return nil
}

// ended waits for a time, or until the channel is closed.
func ended(over <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-over:
		return true
	case <-timer.C:
		return false
	}
}

var ofConnections = []struct {
	name  string
	fault proxy.Fault
}{
	{"before", proxy.LoseRequest}, {"inside", proxy.TearRequest}, {"after", proxy.LoseReply},
	{"torn", proxy.TearReply}, {"reset", proxy.Reset},
}

// strike causes one fault on the connections or the servers.
func (w *world) strike(over <-chan struct{}) error {
	switch n := w.random.IntN(40); n {
	case 0:
		w.done["restart"]++
		return w.restart()
	case 1, 2:
		w.done["failover"]++
		w.current = 1 - w.current
		w.proxy.SetTarget(w.servers[w.current].addr)
		w.proxy.Cut()
	case 3, 4, 5:
		w.done["stall"]++
		resume := w.proxy.Stall()
		ended(over, time.Duration(n)*100*time.Millisecond)
		resume()
	default:
		f := ofConnections[n%len(ofConnections)]
		select {
		case <-w.proxy.Arm(f.fault, "CL.", 0):
			w.done[f.name]++
		case <-over:
			w.proxy.Arm(proxy.None, "", 0)
		}
	}
	return nil
}

// restart kills the server behind the proxy, and starts it again.
func (w *world) restart() (err error) {
	s := w.servers[w.current]
	args := s.cmd.Args
	s.end()
	w.servers[w.current], err = startAt(s.addr, exec.Command(args[0], args[1:]...))
	return err
}

func (w *world) counts() string {
	var list []string
	for name, n := range w.done {
		list = append(list, fmt.Sprintf("%s %d", name, n))
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// start starts a server on a free port.
func start(command func(port string) *exec.Cmd) (*process, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := l.Addr().String()
	l.Close()
	_, port, _ := net.SplitHostPort(addr)
	return startAt(addr, command(port))
}

// startAt starts a server, and waits until it answers.
func startAt(addr string, cmd *exec.Cmd) (*process, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{addr, cmd}
	never := make(chan struct{})
	for range 3000 {
		if answers(addr) {
			return p, nil
		}
		ended(never, 10*time.Millisecond)
	}
	p.end()
	return nil, fmt.Errorf("%v does not answer", cmd)
}

func answers(addr string) bool {
	conn, err := net.DialTimeout("tcp4", addr, time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	reply := make([]byte, len("+PONG"))
	if conn.SetDeadline(time.Now().Add(time.Second)) != nil {
		return false
	}
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	n, _ := conn.Read(reply)
	return string(reply[:n]) == "+PONG"
}

func (p *process) end() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // it was killed
}
