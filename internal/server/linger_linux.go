package server

import (
	"time"

	"golang.org/x/sys/unix"
)

// lingeringConn is the state of a connection that lingers.
type lingeringConn struct {
	began   int64 // instant, nanoseconds
	bytes   int   // discarded
	checked int   // value of bytes at the last check
}

// linger ends the session of a connection whose call was refused before all of it had arrived, and
// makes the connection linger. It returns false if the connection need not linger, or if too many
// connections linger.
func (l *loop) linger(k *loopConn) bool {
	if !k.session.Refused() || k.inputEnded || l.draining || !l.lingering.enter() {
		return false
	}
	k.endSession()
	_ = unix.Shutdown(k.fd, unix.SHUT_WR) // on an error the client has gone, and the next read fails too
	k.setEvents(unix.EPOLLIN)
	l.lingeringConns[k.fd] = &lingeringConn{began: l.instance.Now(), checked: -1}
	return true
}

// discardLingering reads and discards input of a lingering connection.
func (l *loop) discardLingering(fd int, p *lingeringConn) {
	n, err := read(fd, l.buffer)
	if p.bytes += max(n, 0); p.bytes > maxLingerBytes || n <= 0 && err != unix.EAGAIN && err != unix.EINTR {
		l.endLingering(fd)
	}
}

// checkLingering closes the connections that have lingered for maxLingerTime, or have sent nothing
// since the last check.
func (l *loop) checkLingering(now int64) {
	for fd, p := range l.lingeringConns {
		if p.checked == p.bytes || time.Duration(now-p.began) > maxLingerTime {
			l.endLingering(fd)
		}
		p.checked = p.bytes
	}
}

func (l *loop) endLingering(fd int) {
	delete(l.lingeringConns, fd)
	l.lingering.leave()
	l.closeSocket(fd)
}

// endAllLingering closes all lingering connections, when the server shuts down.
func (l *loop) endAllLingering() {
	for fd := range l.lingeringConns {
		l.endLingering(fd)
	}
}
