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
	"cellserver/internal/commands"
	"cellserver/internal/stats"
)

// threads are the other transport: a goroutine a connection, which may wait wherever it likes.
type threads struct {
	instance *commands.Instance
	output   *atomic.Pointer[outputs]
	draining atomic.Bool
	traffic  *stats.Traffic
	open     sync.WaitGroup
	serving  sync.Map // *thread -> nothing

	lingering lingering
}

// thread is one connection. Its goroutine reads; whoever holds mu may use the session and write:
// the reader, or another goroutine that brings what others have for the client.
type thread struct {
	conn     net.Conn
	socket   net.Conn // the same, but below TLS: who closes that does not wait to say goodbye
	instance *commands.Instance
	output   outputBuffer
	traffic  *stats.Traffic
	waking   atomic.Bool // a goroutine is on its way to resume the session

	mu      sync.Mutex
	session *commands.Session
	resumed *sync.Cond // on mu: the session was resumed
	failed  bool       // the connection takes no more
}

func (t *threads) enroll(conn net.Conn) error {
	k := &thread{conn: conn, socket: below(conn), instance: t.instance, output: outputBuffer{limits: t.output},
		traffic: t.traffic}
	k.mu.Lock() // a wake may come before there is a session
	kept := threadBytes + newcomerBytes
	if k.socket != conn {
		kept += tlsBytes
	}
	k.session = t.instance.Open(client.Peer{
		Remote: address(conn.RemoteAddr(), conn), Local: address(conn.LocalAddr(), conn), FD: descriptor(k.socket),
		TransportBytes: kept,
		Wake:           k.wake, Cut: k.cut,
	})
	k.mu.Unlock()
	t.open.Add(1)
	t.serving.Store(k, nil)
	go func() {
		defer t.open.Done()
		defer t.serving.Delete(k)
		k.serve(t)
	}()
	return nil
}

// descriptor is a connection's number, as CLIENT LIST shows it; -1 if it has none.
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

// What a connection takes: threadBytes are about those of its goroutine and of what it uses,
// newcomerBytes what is read at once of a client that has not logged in: less than of others, as
// there may be many.
const (
	threadBytes   = 10 << 10
	newcomerBytes = 1 << 10
)

// serve reads until the client has nothing more to say, and then finishes.
func (t *thread) serve(all *threads) {
	buffer := make([]byte, newcomerBytes)
	for {
		n, err := t.conn.Read(buffer)
		if n > 0 && !t.feed(buffer[:n]) {
			break
		}
		if n == len(buffer) && len(buffer) < readBytes && t.mayReadMore() {
			buffer = make([]byte, readBytes)
		}
		if err != nil {
			switch {
			case all.draining.Load() && errors.Is(err, os.ErrDeadlineExceeded):
				t.feedRest(buffer)
			case errors.Is(err, os.ErrDeadlineExceeded): // resume has found that the conversation is over
			case err != io.EOF && err != io.ErrUnexpectedEOF:
				t.mu.Lock()
				t.failed = true // it takes no replies either
				t.mu.Unlock()
			}
			break
		}
	}
	if t.finish() {
		t.linger(all, buffer)
	}
	t.conn.Close()
}

// feed gives the session input and sends its answers; false when the conversation is over.
func (t *thread) feed(input []byte) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failed || t.session.Closing() {
		return false
	}
	t.traffic.Add(&stats.IO{In: int64(len(input)), Reads: 1})
	t.session.Feed(input)
	t.instance.Yield()
	t.flush()
	return !t.failed && !t.session.Closing()
}

// mayReadMore says whether the client sends enough for a larger buffer, and may have one.
func (t *thread) mayReadMore() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.session.Keep(readBytes - newcomerBytes)
}

// feedRest reads what has arrived, without waiting for more.
func (t *thread) feedRest(buffer []byte) {
	source := io.Reader(hasty{t.socket})
	if secured, ok := t.conn.(*tls.Conn); ok {
		t.mu.Lock() // somebody may write
		secured.NetConn().(*wire).Conn = hasty{t.socket}
		t.mu.Unlock()
		source = secured
	}
	for range 64 { // a client that sends faster than we read does not put the end off
		n, _ := source.Read(buffer)
		if n <= 0 || !t.feed(buffer[:n]) {
			return
		}
	}
}

// hasty is a connection that is read without waiting.
type hasty struct{ net.Conn }

func (h hasty) Read(b []byte) (n int, err error) {
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
	return 0, errNothingYet
}

// flush sends all that the session answers, turn by turn. It needs mu; a client that does not read
// holds up nobody else.
func (t *thread) flush() {
	for !t.failed {
		for next := t.output.next(t.session); len(next) > 0; next = t.output.next(t.session) {
			waiting := t.output.waiting(t.session)
			t.session.ShowUnsent(waiting)
			if (t.output.sent > 0 || waiting > uncounted) && t.output.tooMuch(t.session, t.instance.Now()) {
				t.instance.CountOutputCut()
				t.fail()
				return
			}
			n, err := t.write(next)
			t.output.wasSent(t.session, n)
			t.traffic.Add(&stats.IO{Out: int64(n), Writes: 1})
			if err != nil {
				t.fail()
				return
			}
		}
		if t.session.ShowUnsent(0); !t.session.More() {
			return
		}
		t.session.Resume()
		t.instance.Yield()
	}
}

// write sends a piece. A client that does not take it while the output limit, or its connection's
// end, allows is cut off.
func (t *thread) write(next []byte) (int, error) {
	limit := t.output.limit(t.session)
	if soft := limit.Soft; soft > 0 && t.output.waiting(t.session) > soft {
		defer time.AfterFunc(limit.SoftDuration, func() {
			t.instance.CountOutputCut()
			t.cut()
		}).Stop()
	} else if t.session.Closing() {
		defer time.AfterFunc(patience, t.cut).Stop()
	}
	return t.conn.Write(next)
}

// fail gives the connection up. It needs mu.
func (t *thread) fail() {
	t.failed = true
	t.cut() // wakes the reader
}

// finish sends what is still owed to a client that will say nothing more, and ends the session. It
// reports whether the client may still be sending what was refused.
func (t *thread) finish() (refused bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.resumed = sync.NewCond(&t.mu)
	t.session.Resume() // for what came before there was somebody to wake
	t.flush()
	for !t.failed && !t.session.Closing() && t.session.Owing() && !t.session.Waits() {
		t.resumed.Wait()
	}
	t.session.Close()
	refused = t.session.Refused() && !t.failed
	t.failed = true
	return refused
}

// linger closes one direction, and throws away what arrives in the other.
func (t *thread) linger(all *threads, buffer []byte) {
	if !all.lingering.enter() {
		return
	}
	defer all.lingering.leave()
	if secured, ok := t.conn.(*tls.Conn); ok {
		_ = secured.CloseWrite() // these fail if the client has gone, and then so does the read
	}
	_ = t.socket.(interface{ CloseWrite() error }).CloseWrite()
	_ = t.socket.SetReadDeadline(time.Time{})
	defer time.AfterFunc(lingerFor, t.cut).Stop()
	idle := time.AfterFunc(lingerIdle, t.cut)
	defer idle.Stop()
	for bytes := 0; bytes <= lingerBytes && !all.draining.Load(); {
		n, err := t.socket.Read(buffer)
		if bytes += n; err != nil {
			return
		}
		idle.Reset(lingerIdle)
	}
}

// wake has the session resumed, by a goroutine of its own: the reader may be waiting for input. One
// at a time is enough.
func (t *thread) wake() {
	if t.waking.CompareAndSwap(false, true) {
		go t.resume()
	}
}

func (t *thread) resume() {
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
		_ = t.conn.SetReadDeadline(past) // the reader finishes
	case t.session.Closing():
		t.fail()
	}
	if t.resumed != nil {
		t.resumed.Signal()
	}
}

// cut ends the connection, whoever is using it.
func (t *thread) cut() { t.socket.Close() }

// past is a deadline that has passed: whoever is reading stops.
var past = time.Unix(1, 0)

// drain stops the readers; each answers what has arrived, and ends.
func (t *threads) drain(ctx context.Context) error {
	t.draining.Store(true)
	t.serving.Range(func(k, _ any) bool {
		_ = k.(*thread).conn.SetReadDeadline(past)
		return true
	})
	err := waitFor(ctx, &t.open)
	if err != nil {
		t.serving.Range(func(k, _ any) bool { k.(*thread).cut(); return true })
	}
	return err
}
