// Package backend connects the remote store to Redis or Valkey: a single server, one that Sentinels
// watch, or a cluster. It sends the batches of package combine, each as one pipeline, and fills in
// the replies.
//
// go-redis implements authentication, the questions about a server and its keys, and the client of the Sentinels. This
// package opens the connections itself: a go-redis client may open one whenever it likes, but a decision needs to know
// the clock of the server that it is sent to. So each connection is a go-redis client with one socket
// and no other. Batches are encoded and decoded here (encode.go, reply.go), because go-redis costs more: it sets timers
// for each pipeline, and allocates each command and each argument. Nothing is ever sent twice here: if some bytes of a
// request were written, and there was no reply, its result is Unknown.
package backend

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"cellserver/internal/store/remote/combine"
)

// DefaultSilence is how long a connection may wait for a reply before it is closed.
const DefaultSilence = time.Second

// Config is what a Backend needs to know.
type Config struct {
	Address Address
	Prefix  string // of every key
	// Password is used if PasswordFile is empty; if both are empty, the password in the URL is used. The
	// file is read at each new connection, so a password can be changed without a restart.
	Password, PasswordFile string
	// TLS returns the configuration for rediss. It is called for each new connection, so certificates
	// can be changed without a restart, too. If it is nil, the authorities of the system are used.
	TLS      func() (*tls.Config, error)
	MayEvict bool          // accepts a maxmemory-policy other than noeviction
	Silence  time.Duration // DefaultSilence if zero
	// Now returns the monotonic time of the process, in nanoseconds.
	Now func() int64
	Log *slog.Logger // nil: no log
}

// Backend has the connections to the servers that hold the keys.
type Backend struct {
	config   Config
	topology topology
	stop     context.Context
	cancel   context.CancelFunc
	running  sync.WaitGroup
	reached  atomic.Bool // a connection to a server could be opened
	trips    trips       // of the pipelines of batches
	watch    silenceWatch

	// servers are all servers, by their numbers. The list is replaced, under mu, when one is added, so
	// that reading it takes no lock: the machine asks for a clock for each flight.
	servers atomic.Pointer[[]*server]

	mu          sync.RWMutex
	connections map[place]*connection
	askers      map[place]*asker
}

// place identifies a connection, as a batch does.
type place struct {
	primary            combine.Primary
	database, sequence int
}

// server is one primary.
type server struct {
	number combine.Primary
	name   string // the address under which a node of a cluster is known
	clock  clock

	mu      sync.Mutex
	address string // where the last connection went
	runID   string // of the process that has answered there; empty if it does not say
	about   About  // what the last connection has found out
	trouble error  // why the last connection could not be opened; nil if it could
	warned  bool   // the warning about its maxmemory-policy was logged
}

// topology says which server holds a key. Its methods do not block, apart from address.
type topology interface {
	primary(key string) combine.Primary
	primaries() []combine.Primary
	address(ctx context.Context, p combine.Primary) (string, error) // where the server listens
	moved(slot int, address string)                                 // a server has said so
	lost(p combine.Primary)                                         // a connection was closed, or could not be opened
	probeSlot(p combine.Primary) int                                // a slot that the server holds
	held() <-chan struct{}                                          // closed when batches may be sent; nil: they may
	watch(ctx context.Context)                                      // runs until the backend is closed
}

// Open returns a backend. It opens no connection before the first batch asks for it, except that a
// cluster is asked for its slots, and the Sentinels for the primary.
func Open(config Config) (*Backend, error) {
	if err := CheckPrefix(config.Prefix); err != nil {
		return nil, err
	}
	if config.Now == nil {
		return nil, errors.New("the backend needs a clock")
	}
	if config.Silence == 0 {
		config.Silence = DefaultSilence
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	logging.Disable() // go-redis would write its errors to stderr, and it returns them too
	b := &Backend{config: config, connections: map[place]*connection{}, askers: map[place]*asker{}}
	b.servers.Store(new([]*server))
	b.stop, b.cancel = context.WithCancel(context.Background())
	switch config.Address.Kind {
	case Sentinel:
		b.topology = newSentinels(b)
	case Cluster:
		b.topology = newCluster(b)
	default:
		b.topology = newSingle(b)
	}
	b.running.Go(func() { b.topology.watch(b.stop) })
	return b, nil
}

// Close closes all connections. Batches that are under way end without replies.
func (b *Backend) Close() {
	b.cancel()
	b.mu.Lock()
	connections := b.connections
	b.connections = nil
	b.mu.Unlock()
	for _, c := range connections {
		c.abort()
	}
	b.running.Wait()
	b.closeAskers()
}

// Primary returns the server that holds the slot of a key, or combine.NoPrimary.
func (b *Backend) Primary(key string) combine.Primary { return b.topology.primary(key) }

// Primaries returns all servers that hold slots, in the order of their numbers. There are none before a
// cluster has told its slots. The slice must not be changed.
func (b *Backend) Primaries() []combine.Primary { return b.topology.primaries() }

// Offset returns by how much the server's clock is ahead of this process's.
func (b *Backend) Offset(p combine.Primary) int64 { return b.server(p).clock.offset.Load() }

// RoundTrip returns the shortest round trip of the last measurements of the server's clock, in
// nanoseconds. The offset is wrong by half of it at most.
func (b *Backend) RoundTrip(p combine.Primary) int64 { return b.server(p).clock.trip.Load() }

// ClockJumps returns how often the server's clock was found to be set.
func (b *Backend) ClockJumps(p combine.Primary) int64 { return b.server(p).clock.jumps.Load() }

// Trouble returns why the last connection to a server could not be opened, nil if it could.
func (b *Backend) Trouble(p combine.Primary) error {
	s := b.server(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trouble
}

// Reached reports whether a connection to a server could be opened since the start.
func (b *Backend) Reached() bool { return b.reached.Load() }

// About returns what the last connection to a server has found out.
func (b *Backend) About(p combine.Primary) About {
	s := b.server(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.about
}

// Where returns the address of a server.
func (b *Backend) Where(p combine.Primary) string { return b.server(p).where() }

// server returns the server of a number that was given out.
func (b *Backend) server(p combine.Primary) *server {
	return (*b.servers.Load())[p]
}

// numberOf returns the number of the server at an address. It adds the server if it is new.
func (b *Backend) numberOf(address string) combine.Primary {
	b.mu.Lock()
	defer b.mu.Unlock()
	servers := *b.servers.Load()
	for _, s := range servers {
		if s.name == address {
			return s.number
		}
	}
	s := &server{number: combine.Primary(len(servers)), name: address}
	servers = append(slices.Clip(servers), s)
	b.servers.Store(&servers)
	return s.number
}

// connect opens a connection. It replaces the present one, if there is one.
func (b *Backend) connect(at place) error {
	b.mu.RLock()
	old := b.connections[at]
	b.mu.RUnlock()
	if old != nil {
		b.remove(at, old)
	}
	c, err := b.open(b.stop, at)
	b.note(at.primary, err)
	if err != nil {
		b.topology.lost(at.primary)
		return err
	}
	b.mu.Lock()
	closed := b.connections == nil
	if !closed {
		b.connections[at] = c
	}
	b.mu.Unlock()
	if closed {
		c.abort()
		return context.Canceled
	}
	return nil
}

// note keeps why a connection could not be opened, and logs it when it changes.
func (b *Backend) note(p combine.Primary, err error) {
	s := b.server(p)
	s.mu.Lock()
	before := s.trouble
	s.trouble = err
	address := s.address
	s.mu.Unlock()
	if err == nil {
		b.reached.Store(true)
	}
	switch {
	case b.stop.Err() != nil:
	case err != nil && (before == nil || before.Error() != err.Error()):
		b.config.Log.Warn("store: no connection", "address", address, "error", err)
	case err == nil && before != nil:
		b.config.Log.Info("store: connected again", "address", address)
	}
}

// disconnect closes the sockets of all connections to a server, except the connections to one address. The
// batches under way on closed connections end without replies.
func (b *Backend) disconnect(p combine.Primary, except string) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for at, c := range b.connections {
		if at.primary == p && c.address != except {
			c.abort()
		}
	}
	for at, a := range b.askers {
		if c := a.connection.Load(); at.primary == p && c != nil && c.address != except {
			c.abort()
		}
	}
}
