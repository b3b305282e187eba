package server

import (
	"container/list"
	"crypto/tls"
	"errors"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"cellserver/internal/client"
)

// TLS handshakes. A TLS connection becomes a client only after its handshake. Until then its own
// goroutine serves it, and it occupies one of a limited number of slots. A connection that waits
// for its peer is closed if another connection needs the slot.

// maxHandshakes is the number of handshakes at the same time. Each uses at most about 90 KiB: for a
// ClientHello of 64 KiB, the longest that crypto/tls accepts, and a record. Their memory
// counts as memory of unauthenticated clients, which has a limit.
const maxHandshakes = 512

// TLSOptions are the options of a TLS listener.
type TLSOptions struct {
	Config  func() *tls.Config // called for each connection, so that the certificates can change
	Timeout time.Duration      // of a handshake
	// User returns the user that the certificate of a peer names; empty for none. It may be nil.
	User func(tls.ConnectionState) string
	// Computing bounds the handshakes that compute at once: the result of NewTurns, which other TLS ports
	// may share, or nil for a bound of this server's own.
	Computing chan struct{}
}

// ServeTLS is Serve for a listener whose connections begin with a TLS handshake.
func (s *Server) ServeTLS(listener net.Listener, h TLSOptions) error {
	if !s.register(listener) {
		listener.Close()
		return ErrClosed
	}
	defer s.accepting.Done()
	return s.accept(listener, func(conn net.Conn) { s.startHandshake(conn, h) })
}

// logFailure logs that a handshake has failed. A client that does not use TLS at all is a common mistake, and
// logged as a warning; other failures are logged as details.
func (s *Server) logFailure(conn net.Conn, err error) {
	if errors.As(err, new(tls.RecordHeaderError)) {
		s.log.Warn("disconnected a client that does not use TLS on the port for TLS", "peer", conn.RemoteAddr())
		return
	}
	s.log.Debug("TLS handshake failed", "peer", conn.RemoteAddr(), "error", err)
}

// handshakeQueue holds the connections whose handshakes are not finished.
type handshakeQueue struct {
	slots chan struct{} // a handshake occupies a slot
	cpu   chan struct{} // a handshake that computes occupies a place: see NewTurns

	mu      sync.Mutex
	waiting list.List // of *handshake, the oldest first
	closed  bool
	running sync.WaitGroup
}

// NewTurns returns a channel with room for one value per handshake that may compute at once: half as
// many as there are processors, so that the other half is left to the clients.
func NewTurns() chan struct{} { return make(chan struct{}, max(runtime.GOMAXPROCS(0)/2, 1)) }

func (q *handshakeQueue) open() {
	q.slots = make(chan struct{}, maxHandshakes)
	q.cpu = NewTurns()
}

// handshake is a connection in a handshakeQueue.
type handshake struct {
	socket net.Conn
	conn   *baseConn
	entry  *list.Element // nil if it was cut
	done   bool          // the handshake is finished, and the connection is about to become a client
}

// enter adds a connection. It waits until there is a slot, and returns false if the server shuts
// down.
func (q *handshakeQueue) enter(w *baseConn, ended <-chan struct{}) (*handshake, bool) {
	if !q.acquireSlot(ended) {
		return nil, false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		<-q.slots
		return nil, false
	}
	h := &handshake{socket: w.Conn, conn: w}
	h.entry = q.waiting.PushBack(h)
	q.running.Add(1)
	return h, true
}

// acquireSlot acquires a slot. If no slot is free, it cuts the oldest handshake that waits for its
// peer. While all handshakes compute, it waits, and further connections wait in the listener's
// backlog.
func (q *handshakeQueue) acquireSlot(ended <-chan struct{}) bool {
	select {
	case q.slots <- struct{}{}:
		return true
	default:
	}
	for cut := q.cutOldest(); ; cut = cut || q.cutOldest() {
		select {
		case q.slots <- struct{}{}:
			return true
		case <-ended:
			return false
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (q *handshakeQueue) leave(h *handshake) {
	q.mu.Lock()
	if h.entry != nil {
		q.waiting.Remove(h.entry)
	}
	q.mu.Unlock()
	<-q.slots
	q.running.Done()
}

// markDone marks a handshake as finished, so that it is not cut any more.
func (q *handshakeQueue) markDone(h *handshake) {
	q.mu.Lock()
	defer q.mu.Unlock()
	h.done = true
}

// cutOldest closes the connection of the oldest handshake that waits for its peer. It returns false
// if no handshake does.
func (q *handshakeQueue) cutOldest() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for at := q.waiting.Front(); at != nil; at = at.Next() {
		if h := at.Value.(*handshake); h.conn.waiting.Load() && !h.done {
			h.socket.Close()
			q.waiting.Remove(at)
			h.entry = nil
			return true
		}
	}
	return false
}

func (q *handshakeQueue) count() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting.Len()
}

// shutdown closes the connections of all handshakes, and waits until they have ended. Further
// connections are refused.
func (q *handshakeQueue) shutdown() {
	q.mu.Lock()
	q.closed = true
	for at := q.waiting.Front(); at != nil; at = at.Next() {
		if h := at.Value.(*handshake); !h.done {
			h.socket.Close()
		}
	}
	q.mu.Unlock()
	q.running.Wait()
}

// startHandshake performs the handshake of a connection on another goroutine than the listener's,
// and then makes the connection a client. A refused connection is closed without an error, as in
// Redis: the peer could not read an error before the handshake.
func (s *Server) startHandshake(conn net.Conn, h TLSOptions) {
	if s.refusal(conn) != "" {
		s.instance.CountRefused()
		conn.Close()
		return
	}
	w := newBaseConn(conn, &s.handshakes)
	if h.Computing != nil {
		w.cpu = h.Computing
	}
	inside, ok := s.handshakes.enter(w, s.ended)
	if !ok {
		conn.Close()
		return
	}
	w.counted = s.instance.Unauthenticated().Enter(handshakeBytes, w.waiting.Load, func() { conn.Close() })
	go func() {
		defer s.instance.NoteDeparture() // for a moment the connection counted as a handshake and as a client
		defer s.handshakes.leave(inside)
		defer w.counted.Leave()
		defer time.AfterFunc(h.Timeout, func() { conn.Close() }).Stop()
		secured, err := w.handshake(h.Config())
		if err != nil {
			s.logFailure(conn, err)
			conn.Close()
			return
		}
		if h.User != nil {
			w.user = h.User(secured.ConnectionState())
		}
		s.handshakes.markDone(inside)
		w.counted.Leave() // from now on the session counts its memory
		s.startClient(secured)
	}()
}

// baseConn is the net.Conn under crypto/tls. During the handshake it releases its place among the
// computing handshakes whenever it waits for the peer. After the handshake, it only passes calls on
// to Conn: the socket, or a tlsConn, which never blocks, on an event loop.
type baseConn struct {
	net.Conn
	queue   *handshakeQueue             // nil after the handshake
	cpu     chan struct{}               // takes a value while the handshake computes
	counted *client.UnauthenticatedConn // for the memory of the handshake
	user    string                      // the user that the peer's certificate names
	waiting atomic.Bool                 // it waits for the peer; otherwise it computes, or waits to compute
}

// A handshake uses about handshakeBytes of memory, and readFactor times the bytes that it reads:
// crypto/tls reads into buffers that grow, and the smaller buffers stay until the garbage collector
// frees them.
const (
	handshakeBytes = 24 << 10
	readFactor     = 4
)

func newBaseConn(conn net.Conn, q *handshakeQueue) *baseConn {
	w := &baseConn{Conn: conn, queue: q, cpu: q.cpu}
	w.waiting.Store(true) // a handshake begins with a message of the peer
	return w
}

// handshake performs the handshake.
func (w *baseConn) handshake(config *tls.Config) (*tls.Conn, error) {
	conn := tls.Server(w, config)
	err := conn.Handshake()
	if !w.waiting.Load() {
		<-w.cpu
	}
	w.queue = nil
	return conn, err
}

func (w *baseConn) Read(b []byte) (int, error) {
	if w.queue == nil {
		return w.Conn.Read(b)
	}
	w.releaseCPU()
	defer w.acquireCPU()
	n, err := w.Conn.Read(b)
	if w.counted != nil {
		w.counted.Grow(readFactor * n)
	}
	return n, err
}

func (w *baseConn) Write(b []byte) (int, error) {
	if w.queue != nil {
		w.releaseCPU()
		defer w.acquireCPU()
	}
	return w.Conn.Write(b)
}

// releaseCPU marks the handshake as waiting for its peer.
func (w *baseConn) releaseCPU() {
	if !w.waiting.Swap(true) {
		<-w.cpu
	}
}

// acquireCPU marks the handshake as computing, and waits for a place among the computing handshakes.
func (w *baseConn) acquireCPU() {
	w.waiting.Store(false)
	w.cpu <- struct{}{}
}

// socketOf returns the socket of a connection, which for TLS is the socket under crypto/tls.
func socketOf(conn net.Conn) net.Conn {
	if secured, ok := conn.(*tls.Conn); ok {
		return secured.NetConn().(*baseConn).Conn
	}
	return conn
}

// certificateUser returns the user that the certificate of a peer names.
func certificateUser(conn net.Conn) string {
	if secured, ok := conn.(*tls.Conn); ok {
		return secured.NetConn().(*baseConn).user
	}
	return ""
}

// errWouldBlock is returned to crypto/tls when nothing has arrived. It is a temporary error, after
// which crypto/tls can be called again.
var errWouldBlock net.Error = wouldBlock{}

type wouldBlock struct{}

func (wouldBlock) Error() string   { return "nothing has arrived yet" }
func (wouldBlock) Timeout() bool   { return true }
func (wouldBlock) Temporary() bool { return true }

// isWouldBlock reports whether an error is errWouldBlock.
func isWouldBlock(err error) bool { return errors.Is(err, errWouldBlock) }
