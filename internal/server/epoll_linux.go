package server

import "golang.org/x/sys/unix"

// An event loop's epoll, and another if that fails.

// openEpoll makes the epoll, and has it watch all that the loop has.
func (l *loop) openEpoll() error {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	l.mu.Lock() // a test looks at it
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
	for fd, k := range l.links {
		if err := l.add(fd, k.events); err != nil {
			return err
		}
	}
	for fd := range l.partings {
		if err := l.add(fd, unix.EPOLLIN); err != nil {
			return err
		}
	}
	return nil
}

func (l *loop) add(fd int, events uint32) error {
	return unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

// recover replaces an epoll that fails. A correct program never sees that: something has closed its
// descriptor, or a filter of system calls forbids it. If there is no other epoll, or that one fails
// before it has worked, the loop's connections end, rather than hang; new ones go to other loops.
func (l *loop) recover(failure error) bool {
	again := failure
	if !l.renewed {
		l.renewed = true
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

// closeEpoll closes the epoll if it is one that watches the loop's wake descriptor: else its number
// may belong to something else by now.
func (l *loop) closeEpoll() {
	if l.epoll >= 0 && unix.EpollCtl(l.epoll, unix.EPOLL_CTL_MOD, l.wakeFD,
		&unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(l.wakeFD)}) == nil {
		unix.Close(l.epoll)
	}
}

// epollWait is epoll_wait, for so many milliseconds; -1 is for ever.
func epollWait(epoll int, events []unix.EpollEvent, ms int) (int, error) {
	if ms == 0 {
		return poll(epoll, events)
	}
	return unix.EpollWait(epoll, events, ms)
}
