// Package proxy forwards TCP connections to a server, and makes them fail as networks do: it
// delays, stalls, tears and cuts them.
package proxy

import (
	"bytes"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Fault is what a proxy does to one connection.
type Fault uint8

const (
	None        Fault = iota
	LoseRequest       // cuts the connection when the client sends, before the server gets it
	LoseReply         // cuts the connection when the server has replied, before the client gets it
	TearReply         // forwards the first bytes of a reply, and then cuts the connection
	TearRequest       // forwards the first half of what the client sends, and then cuts the connection
	Reset             // resets the connection when the server has replied, before the client gets it
)

// ofRequest reports whether a fault strikes when the client sends.
func (f Fault) ofRequest() bool { return f == LoseRequest || f == TearRequest }

// torn is the number of bytes that TearReply forwards.
const torn = 2

// Proxy is between clients and a server.
type Proxy struct {
	Addr string // where clients connect

	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex
	target string
	delay  time.Duration
	next   Fault
	match  []byte // contained in the request whose connection gets the fault
	spare  int    // replies that pass before the fault, as they arrive
	struck chan struct{}
	resume chan struct{} // closed unless replies are stalled
	pairs  map[*pair]bool
	closed bool
}

// pair is a client's connection, and the connection to the server.
type pair struct {
	client, server net.Conn
	armed          bool // a request has matched; the proxy's mu protects it
	ended          chan struct{}
	once           sync.Once
}

func (p *pair) cut() {
	p.once.Do(func() {
		close(p.ended)
		p.client.Close()
		p.server.Close()
	})
}

// New starts a proxy for the server at an address, which SetTarget may set later. The proxy ends
// with the test.
func New(t testing.TB, target string) *Proxy {
	p, err := Start(target)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// Start starts a proxy for the server at an address. The caller must close it.
func Start(target string) (*Proxy, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{Addr: l.Addr().String(), listener: l, target: target, pairs: map[*pair]bool{}, resume: make(chan struct{})}
	close(p.resume)
	p.running.Go(p.accept)
	return p, nil
}

// Close cuts all connections, and ends the proxy.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.listener.Close()
	p.Cut()
	p.running.Wait()
}

// SetTarget changes the server for later connections. An empty address refuses them.
func (p *Proxy) SetTarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// SetDelay delays all that is forwarded, in each direction.
func (p *Proxy) SetDelay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Arm causes a fault, once, on the connection on which the next request that contains match is sent.
// spare is the number of pieces of the reply that pass before. The channel is closed when the fault
// has happened.
func (p *Proxy) Arm(f Fault, match string, spare int) (struck <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next, p.match, p.spare, p.struck = f, []byte(match), spare, make(chan struct{})
	return p.struck
}

// Stall holds back all replies until resume is called.
func (p *Proxy) Stall() (resume func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	stalled := make(chan struct{})
	p.resume = stalled
	return sync.OnceFunc(func() { close(stalled) })
}

// Cut cuts all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pair := range p.pairs {
		pair.cut()
	}
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.mu.Lock()
		target := p.target
		p.mu.Unlock()
		server, err := net.DialTimeout("tcp", target, 30*time.Second)
		if target == "" || err != nil {
			client.Close()
			continue
		}
		p.serve(&pair{client: client, server: server, ended: make(chan struct{})})
	}
}

func (p *Proxy) serve(c *pair) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		c.cut()
		return
	}
	p.pairs[c] = true
	p.running.Go(func() { p.forward(c, c.client, c.server, true) })
	p.running.Go(func() {
		p.forward(c, c.server, c.client, false)
		p.mu.Lock()
		delete(p.pairs, c)
		p.mu.Unlock()
	})
}

// forward copies one direction of a connection.
func (p *Proxy) forward(c *pair, from, to net.Conn, isRequest bool) {
	defer c.cut()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if err != nil || !p.wait(c, isRequest) {
			return
		}
		fault := p.strike(c, b[:n], isRequest)
		switch fault { // the connection is cut in any case, so no error matters
		case TearReply:
			_, _ = to.Write(b[:min(n, torn)])
		case TearRequest:
			_, _ = to.Write(b[:n/2])
		case Reset:
			_ = c.client.(*net.TCPConn).SetLinger(0)
		}
		if fault != None {
			return
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}

// wait waits for the delay, and until replies are not stalled. It returns false if the connection has
// ended.
func (p *Proxy) wait(c *pair, isRequest bool) bool {
	p.mu.Lock()
	delay, resume := p.delay, p.resume
	p.mu.Unlock()
	if delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-c.ended:
			return false
		}
	}
	if isRequest {
		return true
	}
	select {
	case <-resume:
		return true
	case <-c.ended:
		return false
	}
}

// strike returns the fault for a piece that is being forwarded.
func (p *Proxy) strike(c *pair, piece []byte, isRequest bool) Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == None {
		return None
	}
	if isRequest && bytes.Contains(piece, p.match) {
		c.armed = true
	}
	if !c.armed || isRequest != p.next.ofRequest() {
		return None
	}
	if p.spare > 0 && !isRequest {
		p.spare--
		return None
	}
	f := p.next
	p.next = None
	close(p.struck)
	return f
}
