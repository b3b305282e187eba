package server

import (
	"time"

	"golang.org/x/sys/unix"
)

// parting is a connection of a loop that lingers.
type parting struct {
	began  int64 // instant, nanoseconds
	bytes  int   // that were thrown away
	looked int   // bytes when it was looked at last
}

// linger ends the session of a link that was refused in the middle of a call, and has its
// connection linger; false if that is not needed, or there is no place.
func (l *loop) linger(k *link) bool {
	if !k.session.Refused() || k.ended || l.draining || !l.lingering.enter() {
		return false
	}
	k.leave()
	_ = unix.Shutdown(k.fd, unix.SHUT_WR) // it fails if the client has gone: then so does the next read
	k.watch(unix.EPOLLIN)
	l.partings[k.fd] = &parting{began: l.instance.Now(), looked: -1}
	return true
}

// throwAway reads what a connection that lingers has sent.
func (l *loop) throwAway(fd int, p *parting) {
	n, err := read(fd, l.buffer)
	if p.bytes += max(n, 0); p.bytes > lingerBytes || n <= 0 && err != unix.EAGAIN && err != unix.EINTR {
		l.part(fd)
	}
}

// lookAtPartings ends those that have lingered long enough, or sent nothing since the last look.
func (l *loop) lookAtPartings(now int64) {
	for fd, p := range l.partings {
		if p.looked == p.bytes || time.Duration(now-p.began) > lingerFor {
			l.part(fd)
		}
		p.looked = p.bytes
	}
}

func (l *loop) part(fd int) {
	delete(l.partings, fd)
	l.lingering.leave()
	l.free(fd)
}

// partAll ends all of them: the server stops.
func (l *loop) partAll() {
	for fd := range l.partings {
		l.part(fd)
	}
}
