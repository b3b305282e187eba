package server

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cellserver/internal/client"
	"cellserver/internal/session"
	"cellserver/internal/stats"
)

// goroutineTransport serves each connection with a goroutine, which may block anywhere.
type goroutineTransport struct {
	instance *session.Instance
	output   *atomic.Pointer[classLimits]
	draining atomic.Bool
	traffic  *stats.Traffic
	conns    sync.WaitGroup
	active   sync.Map // set of *goroutineConn

	lingering lingering
}

// goroutineConn is one connection. Its goroutine reads. A goroutine that holds mu may use the session and
// write: the reader does, and goroutines that send messages and replies from the session's mailbox.
type goroutineConn struct {
	conn     net.Conn
	socket   net.Conn // the socket under TLS: closing it does not wait for the alert that ends TLS
	instance *session.Instance
	output   outputBuffer
	traffic  *stats.Traffic
	waking   atomic.Bool // a goroutine that resumes the session has been started

	mu      sync.Mutex
	session *session.Session
	resumed *sync.Cond // on mu: signals that the session was resumed
	failed  bool       // the connection cannot be written to any more
}

// beat has nothing to wait for: a goroutine that is stuck delays only its own client.
func (t *goroutineTransport) beat(context.Context) error { return nil }

func (t *goroutineTransport) attach(conn net.Conn) error {
	k := &goroutineConn{conn: conn, socket: socketOf(conn), instance: t.instance,
		output:  outputBuffer{limits: t.output},
		traffic: t.traffic}
	k.mu.Lock() // wake may be called before the session is set
	kept := goroutineBytes + firstReadBytes
	if k.socket != conn {
		kept += tlsBytes
	}
	k.session = t.instance.Open(client.Peer{
		Remote: displayAddress(conn.RemoteAddr(), conn), Local: displayAddress(conn.LocalAddr(), conn),
		FD:             descriptor(k.socket),
		TransportBytes: kept, CertificateUser: certificateUser(conn),
		Wake: k.wake, Cut: k.cut,
	})
	k.mu.Unlock()
	t.conns.Add(1)
	t.active.Store(k, nil)
	go func() {
		defer t.conns.Done()
		defer t.active.Delete(k)
		k.serve(t)
	}()
	return nil
}

// descriptor returns the number of a connection's descriptor for CLIENT LIST, or -1 if it has none.
func descriptor(conn net.Conn) (fd int) {
	fd = -1
	if raw := rawConn(conn); raw != nil {
		_ = raw.Control(func(n uintptr) { fd = int(n) })
	}
	return fd
}

func rawConn(conn net.Conn) syscall.RawConn {
	if c, ok := conn.(syscall.Conn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			return raw
		}
	}
	return nil
}

// goroutineBytes estimates the memory of a connection's goroutine, in bytes. firstReadBytes is the
// size of the read buffer of a client that has not authenticated. It is smaller than other
// clients' buffers, because there may be many such clients.
const (
	goroutineBytes = 10 << 10
	firstReadBytes = 1 << 10
)

// serve reads until the client closes its direction or the session ends, and then finishes.
func (t *goroutineConn) serve(all *goroutineTransport) {
	buffer := make([]byte, firstReadBytes)
	for {
		n, err := t.conn.Read(buffer)
		if n > 0 && !t.feed(buffer[:n]) {
			break
		}
		if n == len(buffer) && len(buffer) < readBytes && t.mayGrowBuffer() {
			buffer = make([]byte, readBytes)
		}
		if err != nil {
			switch {
			case all.draining.Load() && errors.Is(err, os.ErrDeadlineExceeded):
				t.feedRest(buffer)
			case errors.Is(err, os.ErrDeadlineExceeded): // resume has found that the session ends
			case err != io.EOF && err != io.ErrUnexpectedEOF:
				t.mu.Lock()
				t.failed = true // replies cannot be sent either
				t.mu.Unlock()
			}
			break
		}
	}
	if t.finish(all.draining.Load()) {
		t.linger(all, buffer)
	}
	t.conn.Close()
}

// feed passes input to the session and sends its replies. It returns false when the session ends.
func (t *goroutineConn) feed(input []byte) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failed || t.session.Closing() {
		return false
	}
	t.traffic.Add(&stats.IO{In: int64(len(input)), Reads: 1})
	t.session.Counts.BytesIn.Add(int64(len(input)))
	t.session.Feed(input)
	t.instance.Yield()
	t.flush()
	return !t.failed && !t.session.Closing()
}

// mayGrowBuffer reports whether the client may have a larger read buffer, and charges the client for it.
func (t *goroutineConn) mayGrowBuffer() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.session.Keep(readBytes - firstReadBytes)
}

// feedRest reads input that has arrived without blocking for more.
func (t *goroutineConn) feedRest(buffer []byte) {
	source := io.Reader(nonBlocking{t.socket})
	if secured, ok := t.conn.(*tls.Conn); ok {
		t.mu.Lock() // another goroutine may write
		secured.NetConn().(*baseConn).Conn = nonBlocking{t.socket}
		t.mu.Unlock()
		source = secured
	}
	for range 64 { // a client that sends faster than the server reads must not delay the close
		n, _ := source.Read(buffer)
		if n <= 0 || !t.feed(buffer[:n]) {
			return
		}
	}
}

// nonBlocking is a connection that is read without blocking.
type nonBlocking struct{ net.Conn }

func (h nonBlocking) Read(b []byte) (n int, err error) {
	raw := rawConn(h.Conn)
	if raw == nil || raw.Control(func(fd uintptr) { n, err = unix.Read(int(fd), b) }) != nil {
		return 0, net.ErrClosed
	}
	switch {
	case n > 0:
		return n, nil
	case n == 0 && err == nil:
		return 0, io.EOF
	}
	return 0, errWouldBlock
}

// flush sends the session's replies, turn by turn. It blocks while the client does not read, which
// delays no other client. The caller holds mu.
func (t *goroutineConn) flush() {
	for !t.failed {
		for next := t.output.next(t.session); len(next) > 0; next = t.output.next(t.session) {
			waiting := t.output.waiting(t.session)
			t.session.SetUnsent(waiting)
			if (t.output.sent > 0 || waiting > uncheckedBytes) && t.output.exceedsLimit(t.session, t.instance.Now()) {
				t.session.CountOutputCut()
				t.abort()
				return
			}
			n, err := t.write(next)
			t.output.markSent(t.session, n)
			t.traffic.Add(&stats.IO{Out: int64(n), Writes: 1})
			t.session.Counts.BytesOut.Add(int64(n))
			if err != nil {
				t.abort()
				return
			}
		}
		if t.session.SetUnsent(0); !t.session.More() {
			return
		}
		t.session.Resume()
		t.instance.Yield()
	}
}

// write sends a piece. It closes the connection if the client does not read within the time of the
// output limit, or within closeTimeout if the session is closing.
func (t *goroutineConn) write(next []byte) (int, error) {
	limit := t.output.limit(t.session)
	if soft := limit.Soft; soft > 0 && t.output.waiting(t.session) > soft {
		defer time.AfterFunc(limit.SoftDuration, func() {
			t.session.CountOutputCut()
			t.cut()
		}).Stop()
	} else if t.session.Closing() {
		defer time.AfterFunc(closeTimeout, t.cut).Stop()
	}
	return t.conn.Write(next)
}

// abort closes the connection. The caller holds mu.
func (t *goroutineConn) abort() {
	t.failed = true
	t.cut() // interrupts the reader
}

// finish sends the replies that are still due, and ends the session. While the server drains, blocked
// clients get their replies, so finish waits for these too. It reports whether the client may still be
// sending a refused call.
func (t *goroutineConn) finish(draining bool) (refused bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.resumed = sync.NewCond(&t.mu)
	t.session.Resume() // for mail that came before resumed was set
	t.flush()
	for !t.failed && !t.session.Closing() && t.session.HasUnanswered() && (draining || !t.session.IsBlocked()) {
		t.resumed.Wait()
	}
	t.session.Close()
	refused = t.session.Refused() && !t.failed
	t.failed = true
	return refused
}

// linger closes the server's direction of the connection, and discards what the client still sends:
// see linger.go.
func (t *goroutineConn) linger(all *goroutineTransport, buffer []byte) {
	if !all.lingering.enter() {
		return
	}
	defer all.lingering.leave()
	if secured, ok := t.conn.(*tls.Conn); ok {
		_ = secured.CloseWrite() // on an error the client has gone, and the read fails too
	}
	_ = t.socket.(interface{ CloseWrite() error }).CloseWrite()
	_ = t.socket.SetReadDeadline(time.Time{})
	defer time.AfterFunc(maxLingerTime, t.cut).Stop()
	idle := time.AfterFunc(maxLingerIdle, t.cut)
	defer idle.Stop()
	for bytes := 0; bytes <= maxLingerBytes && !all.draining.Load(); {
		n, err := t.socket.Read(buffer)
		if bytes += n; err != nil {
			return
		}
		idle.Reset(maxLingerIdle)
	}
}

// wake resumes the session on another goroutine, because the reader may be blocked. There is at
// most one such goroutine at a time.
func (t *goroutineConn) wake() {
	if t.waking.CompareAndSwap(false, true) {
		go t.resume()
	}
}

func (t *goroutineConn) resume() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waking.Store(false)
	if t.failed {
		return
	}
	t.session.Resume()
	t.flush()
	switch {
	case t.session.Refused() && !t.failed:
		_ = t.conn.SetReadDeadline(pastDeadline) // so that the reader finishes
	case t.session.Closing():
		t.abort()
	}
	if t.resumed != nil {
		t.resumed.Signal()
	}
}

// cut closes the socket, also while other goroutines use it.
func (t *goroutineConn) cut() { t.socket.Close() }

// pastDeadline is a deadline in the past, which interrupts the reader.
var pastDeadline = time.Unix(1, 0)

// drain interrupts the readers. Each answers the calls that have arrived, and ends.
func (t *goroutineTransport) drain(ctx context.Context) error {
	t.draining.Store(true)
	t.active.Range(func(k, _ any) bool {
		_ = k.(*goroutineConn).conn.SetReadDeadline(pastDeadline)
		return true
	})
	err := waitFor(ctx, &t.conns)
	if err != nil {
		t.active.Range(func(k, _ any) bool { k.(*goroutineConn).session.Peer.Cut(); return true })
	}
	return err
}
