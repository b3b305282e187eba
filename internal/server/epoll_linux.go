package server

import "golang.org/x/sys/unix"

// This file opens an event loop's epoll instance, and replaces it if it fails.

// openEpoll creates an epoll instance and registers all descriptors of the loop.
func (l *loop) openEpoll() error {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	l.mu.Lock() // tests read it
	l.epoll = epoll
	l.mu.Unlock()
	if err = l.watchAll(); err != nil {
		unix.Close(epoll)
	}
	return err
}

func (l *loop) watchAll() error {
	if err := l.add(l.wakeFD, unix.EPOLLIN); err != nil {
		return err
	}
	for fd, k := range l.connByFD {
		if err := l.add(fd, k.events); err != nil {
			return err
		}
	}
	for fd := range l.lingeringConns {
		if err := l.add(fd, unix.EPOLLIN); err != nil {
			return err
		}
	}
	return nil
}

func (l *loop) add(fd int, events uint32) error {
	return unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

// replaceEpoll replaces an epoll instance that has failed. An instance fails only if something else
// in the process has closed its descriptor, or a system call filter forbids its use. If no new
// instance can be created, or the new one fails before it has worked once, replaceEpoll returns
// false: the loop closes its connections, which would hang otherwise, and ends, and new connections
// go to other loops.
func (l *loop) replaceEpoll(failure error) bool {
	again := failure
	if !l.replaced {
		l.replaced = true
		l.closeEpoll()
		if again = l.openEpoll(); again == nil {
			l.log.Error("epoll failed: the event loop continues with a new one", "error", failure)
			return true
		}
	}
	l.log.Error("epoll failed: the event loop ended and closed its connections", "error", failure, "again", again)
	l.end()
	return false
}

// closeEpoll closes the descriptor of the epoll instance, unless its number belongs to another file
// by now. It is still the loop's if it watches the loop's wake descriptor.
func (l *loop) closeEpoll() {
	if l.epoll >= 0 && unix.EpollCtl(l.epoll, unix.EPOLL_CTL_MOD, l.wakeFD,
		&unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(l.wakeFD)}) == nil {
		unix.Close(l.epoll)
	}
}

// epollWait waits for events for up to ms milliseconds, or without limit if ms is -1.
func epollWait(epoll int, events []unix.EpollEvent, ms int) (int, error) {
	if ms == 0 {
		return poll(epoll, events)
	}
	return unix.EpollWait(epoll, events, ms)
}
