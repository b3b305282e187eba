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

// A TLS connection is a client only once hands are shaken: until then it is nobody, has a goroutine
// of its own, and waits in a room that has an end. Who stands there without a word gives way to who
// comes.

// maxHandshakes is how many connections may be shaking hands. One holds at most some 90 KiB: a
// ClientHello of 64 KiB, the longest that crypto/tls takes, and a record. All together are bounded
// with the clients that have not logged in.
const maxHandshakes = 512

// Handshakes is what the connections of a TLS listener are met with.
type Handshakes struct {
	Config  func() *tls.Config // asked anew for each connection, so that certificates can be changed
	Timeout time.Duration      // that one may take, all in all
}

// ServeTLS is Serve for a listener whose connections begin with a TLS handshake.
func (s *Server) ServeTLS(listener net.Listener, h Handshakes) error {
	if !s.register(listener) {
		listener.Close()
		return ErrClosed
	}
	defer s.accepting.Done()
	return s.accept(listener, func(conn net.Conn) { s.meet(conn, h) })
}

// room is where connections are until hands are shaken.
type room struct {
	places  chan struct{} // one is taken by each
	compute chan struct{} // and one of these while it has work for a processor: the others are for who is a client already

	mu      sync.Mutex
	inside  list.List // of *handshake, the longest inside first
	closed  bool
	leaving sync.WaitGroup
}

func (r *room) open() {
	r.places = make(chan struct{}, maxHandshakes)
	r.compute = make(chan struct{}, max(runtime.GOMAXPROCS(0)/2, 1))
}

// handshake is a connection in the room.
type handshake struct {
	socket net.Conn
	wire   *wire
	at     *list.Element // nil if it gave way
	done   bool          // hands are shaken: it only waits to be a client
}

// enter takes a place; false if the server ends.
func (r *room) enter(w *wire, ended <-chan struct{}) (*handshake, bool) {
	if !r.find(ended) {
		return nil, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		<-r.places
		return nil, false
	}
	h := &handshake{socket: w.Conn, wire: w}
	h.at = r.inside.PushBack(h)
	r.leaving.Add(1)
	return h, true
}

// find takes a place: who has waited longest for the peer to say something gives way. As long as
// all have work to do, who comes waits, and others behind him with the system.
func (r *room) find(ended <-chan struct{}) bool {
	select {
	case r.places <- struct{}{}:
		return true
	default:
	}
	for gaveWay := r.giveWay(); ; gaveWay = gaveWay || r.giveWay() {
		select {
		case r.places <- struct{}{}:
			return true
		case <-ended:
			return false
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (r *room) leave(h *handshake) {
	r.mu.Lock()
	if h.at != nil {
		r.inside.Remove(h.at)
	}
	r.mu.Unlock()
	<-r.places
	r.leaving.Done()
}

// pass says that a connection need not give way any more.
func (r *room) pass(h *handshake) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h.done = true
}

// giveWay ends the handshake that has taken longest of those that wait for their peers; false if
// none does.
func (r *room) giveWay() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for at := r.inside.Front(); at != nil; at = at.Next() {
		if h := at.Value.(*handshake); h.wire.waits.Load() && !h.done { // who is done is a client, or about to be
			h.socket.Close()
			r.inside.Remove(at)
			h.at = nil
			return true
		}
	}
	return false
}

func (r *room) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inside.Len()
}

// clear ends all handshakes, and lets nobody in.
func (r *room) clear() {
	r.mu.Lock()
	r.closed = true
	for at := r.inside.Front(); at != nil; at = at.Next() {
		if h := at.Value.(*handshake); !h.done {
			h.socket.Close()
		}
	}
	r.mu.Unlock()
	r.leaving.Wait()
}

// meet has a connection shake hands, beside the listener, and then lets it in. Who may not come in
// is turned away without a word, as by Redis: there are no words yet that the peer would
// understand.
func (s *Server) meet(conn net.Conn, h Handshakes) {
	if s.refusal(conn) != "" {
		s.instance.CountRejected()
		conn.Close()
		return
	}
	w := newWire(conn, &s.room)
	inside, ok := s.room.enter(w, s.ended)
	if !ok {
		conn.Close()
		return
	}
	w.newcomer = s.instance.Unauthenticated().Enter(handshakeBytes, w.waits.Load, func() { conn.Close() })
	go func() {
		defer s.instance.NoteDeparture() // it counted twice while it was a client already
		defer s.room.leave(inside)
		defer w.newcomer.Leave()
		defer time.AfterFunc(h.Timeout, func() { conn.Close() }).Stop()
		secured, err := w.shakeHands(h.Config())
		if err != nil {
			s.log.Debug("TLS handshake failed", "peer", conn.RemoteAddr(), "error", err)
			conn.Close()
			return
		}
		s.room.pass(inside)
		w.newcomer.Leave() // its session is counted from now on
		s.letIn(secured)
	}()
}

// wire is what crypto/tls takes for the network. While hands are shaken it gives the processor to
// others whenever it waits for the peer. Then it is the socket; or the event loop puts another Conn
// in its place, which never waits.
type wire struct {
	net.Conn
	room     *room                       // nil once hands are shaken
	newcomer *client.UnauthenticatedConn // for which what arrives is counted
	waits    atomic.Bool                 // for the peer; else it computes, or waits for a processor
}

// A handshake takes about so much by itself, and four times what it reads: crypto/tls gathers that
// in buffers that grow, and the smaller ones stay for a while, too.
const (
	handshakeBytes = 24 << 10
	keptOfRead     = 4
)

func newWire(conn net.Conn, r *room) *wire {
	w := &wire{Conn: conn, room: r}
	w.waits.Store(true) // a handshake begins with what the peer says
	return w
}

// shakeHands is the handshake.
func (w *wire) shakeHands(config *tls.Config) (*tls.Conn, error) {
	conn := tls.Server(w, config)
	err := conn.Handshake()
	if !w.waits.Load() {
		<-w.room.compute // and it need not give way any more
	}
	w.room = nil
	return conn, err
}

func (w *wire) Read(b []byte) (int, error) {
	if w.room == nil {
		return w.Conn.Read(b)
	}
	w.wait()
	defer w.goOn()
	n, err := w.Conn.Read(b)
	if w.newcomer != nil {
		w.newcomer.Grow(keptOfRead * n)
	}
	return n, err
}

func (w *wire) Write(b []byte) (int, error) {
	if w.room != nil {
		w.wait()
		defer w.goOn()
	}
	return w.Conn.Write(b)
}

func (w *wire) wait() {
	if !w.waits.Swap(true) {
		<-w.room.compute
	}
}

func (w *wire) goOn() {
	w.waits.Store(false)
	w.room.compute <- struct{}{}
}

// below is a connection's socket, below TLS if there is TLS.
func below(conn net.Conn) net.Conn {
	if secured, ok := conn.(*tls.Conn); ok {
		return secured.NetConn().(*wire).Conn
	}
	return conn
}

// errNothingYet is what crypto/tls hears when nothing has arrived: an error that passes, after
// which it may be asked again.
var errNothingYet net.Error = nothingYet{}

type nothingYet struct{}

func (nothingYet) Error() string   { return "nothing has arrived yet" }
func (nothingYet) Timeout() bool   { return true }
func (nothingYet) Temporary() bool { return true }

// isNothingYet says whether an error is that.
func isNothingYet(err error) bool { return errors.Is(err, errNothingYet) }
