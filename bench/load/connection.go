//go:build linux

package load

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// connection is a non-blocking socket, with the output that has not been sent yet and the replies
// so far.
type connection struct {
	fd      int
	number  int
	out     []byte
	replies replies
	called  time.Time // when the last call was made, if the load wants to know
}

// dial does not use net.Dial, because every reply would also wake the runtime's poller.
func dial(t Target) (*connection, error) {
	family, address, err := t.resolve()
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	err = unix.Connect(fd, address)
	if err == nil && family == unix.AF_INET {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	}
	if err = errors.Join(err, unix.SetNonblock(fd, true)); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to %s: %w", t.Address, err), unix.Close(fd))
	}
	return &connection{fd: fd}, nil
}

func (t Target) resolve() (family int, address unix.Sockaddr, err error) {
	if t.Network == "unix" {
		return unix.AF_UNIX, &unix.SockaddrUnix{Name: t.Address}, nil
	}
	host, port, err := net.SplitHostPort(t.Address)
	if err != nil {
		return 0, nil, err
	}
	ip := net.ParseIP(host).To4()
	number, err := strconv.Atoi(port)
	if err != nil || ip == nil {
		return 0, nil, fmt.Errorf("%s: not an IPv4 address and a port", t.Address)
	}
	return unix.AF_INET, &unix.SockaddrInet4{Port: number, Addr: [4]byte(ip)}, nil
}

// flush sends as much as the socket takes. The rest stays in out.
func (c *connection) flush() error {
	for len(c.out) > 0 {
		n, err := unix.Write(c.fd, c.out)
		switch {
		case err == unix.EAGAIN:
			return nil
		case err == unix.EINTR:
			continue
		case err != nil:
			return fmt.Errorf("write: %w", err)
		}
		c.out = c.out[:copy(c.out, c.out[n:])]
	}
	return nil
}

// receive reads once, and returns how many replies this has completed.
func (c *connection) receive(buffer []byte) (int, error) {
	n, err := unix.Read(c.fd, buffer)
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("read: %w", err)
	case n == 0:
		return 0, errors.New("the server closed the connection")
	}
	return c.replies.count(buffer[:n])
}

// pool is a set of connections to one server, and the epoll instance that waits for them.
type pool struct {
	connections []*connection
	epoll       int
	ready       []unix.EpollEvent
	buffer      []byte // for reading
}

// gather opens n connections, to each target in turn.
func gather(targets []Target, n int) (*pool, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	p := &pool{epoll: epoll, ready: make([]unix.EpollEvent, n), buffer: make([]byte, 64<<10)}
	for i := range n {
		c, err := dial(targets[i%len(targets)])
		if err == nil {
			c.number = i
			p.connections = append(p.connections, c)
			err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, c.fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)})
		}
		if err != nil {
			p.close()
			return nil, err
		}
	}
	return p, nil
}

func (p *pool) close() {
	for _, c := range p.connections {
		_ = unix.Close(c.fd)
	}
	_ = unix.Close(p.epoll)
}

// poll waits for input for at most so many milliseconds, reads from every connection that has
// input, and calls answered for every connection with complete replies.
func (p *pool) poll(milliseconds int, answered func(c *connection, replies int) error) error {
	n, err := unix.EpollWait(p.epoll, p.ready, milliseconds)
	if err != nil && err != unix.EINTR {
		return fmt.Errorf("epoll: %w", err)
	}
	for _, event := range p.ready[:max(n, 0)] {
		c := p.connections[event.Fd]
		replies, err := c.receive(p.buffer)
		if err == nil && replies > 0 {
			err = answered(c, replies)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// flush sends the remaining output of all connections, and reports whether any output is left.
func (p *pool) flush() (left bool, err error) {
	for _, c := range p.connections {
		if len(c.out) > 0 {
			if err := c.flush(); err != nil {
				return true, err
			}
			left = left || len(c.out) > 0
		}
	}
	return left, nil
}
