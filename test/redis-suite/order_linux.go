package main

import (
	"io"
	"net"
	"sync"

	"golang.org/x/sys/unix"
)

// order forwards what clients send in the order of arrival. In many tests one client makes a call,
// and another client makes the next call without waiting; these tests rely on the order. A
// goroutine for each client would not keep the order; epoll keeps it, in its list of readable
// connections.
type order struct {
	epoll int

	mu    sync.Mutex
	links map[int32]*link
}

// link is one client's connection to the server.
type link struct {
	to  io.Writer
	end func() // called once, at the end of the input
}

func newOrder() (*order, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	o := &order{epoll: epoll, links: map[int32]*link{}}
	go o.run()
	return o, nil
}

// forward forwards what a client sends. The caller keeps the client open until end is called.
func (o *order) forward(client *net.TCPConn, to io.Writer, end func()) error {
	raw, err := client.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) {
		o.mu.Lock()
		o.links[int32(fd)] = &link{to, end}
		o.mu.Unlock()
		if err := unix.EpollCtl(o.epoll, unix.EPOLL_CTL_ADD, int(fd),
			&unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
			o.drop(int32(fd))
		}
	})
}

func (o *order) run() {
	events, buffer := make([]unix.EpollEvent, 64), make([]byte, 64<<10)
	for {
		n, err := unix.EpollWait(o.epoll, events, -1)
		if err != nil && err != unix.EINTR {
			return
		}
		for _, event := range events[:max(n, 0)] {
			o.hand(event.Fd, buffer)
		}
	}
}

func (o *order) hand(fd int32, buffer []byte) {
	o.mu.Lock()
	l := o.links[fd]
	o.mu.Unlock()
	n, err := unix.Read(int(fd), buffer)
	if err == unix.EAGAIN || err == unix.EINTR {
		return
	}
	if n > 0 {
		if _, err = l.to.Write(buffer[:n]); err == nil {
			return
		}
	}
	o.drop(fd)
}

// drop ends a link. It is called before the descriptor is closed, because another connection may get the
// same descriptor then.
func (o *order) drop(fd int32) {
	_ = unix.EpollCtl(o.epoll, unix.EPOLL_CTL_DEL, int(fd), nil) // it fails if the descriptor was never added
	o.mu.Lock()
	l := o.links[fd]
	delete(o.links, fd)
	o.mu.Unlock()
	l.end()
}
