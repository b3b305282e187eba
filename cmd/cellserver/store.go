package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"cellserver/internal/meter"
	"cellserver/internal/option"
	"cellserver/internal/store"
	"cellserver/internal/store/memory"
	"cellserver/internal/store/remote"
	"cellserver/internal/store/remote/backend"
	"cellserver/internal/store/remote/combine"
	"cellserver/internal/tlsconfig"
)

// inMemory is the value of --store for a store in this process's memory.
const inMemory = "memory"

// storeOptions holds the options about the program that keeps the keys.
type storeOptions struct {
	url                    string
	prefix                 string
	password, passwordFile string
	timeout                int // milliseconds
	known                  int // keys
	cacheDenials           int // milliseconds
	lease                  int // milliseconds
	mayEvict, allowFlush   string
	tls                    tlsconfig.ClientOptions
	renew                  func(context.Context) error // reads the files again; nil without files
}

// storeTLSNames are the names of the options about TLS to the store.
var storeTLSNames = tlsconfig.Names{CACert: "--store-tls-ca-cert-file", Cert: "--store-tls-cert-file",
	Key: "--store-tls-key-file"}

func newStoreOptions() storeOptions {
	return storeOptions{url: inMemory, timeout: 100, known: 100_000, mayEvict: "no", allowFlush: "no",
		tls: tlsconfig.ClientOptions{Names: storeTLSNames}}
}

func (s *storeOptions) options() []*option.Option {
	return []*option.Option{
		{Name: "store", Group: option.Store, Kind: storeURL{option.Text(&s.url, "memory|URL"), s},
			Help: "where the keys are: memory, or the URL of a Redis or Valkey server: " + backend.Examples,
			Use:  "Set it if several servers must share their limits, or if limits must outlive this process in a Redis that exists already."},
		{Name: "store-prefix", Group: option.Store, Kind: option.Text(&s.prefix, "text"),
			Help: "beginning of the names of all keys in the store; servers with the same prefix share their limits",
			Use:  "Set it if other programs keep keys in the same database."},
		{Name: "store-password", Group: option.Store, Kind: hidden{option.Text(&s.password, "password")}, Secret: true,
			Help: "password of the store; better in a file, or in the environment. CONFIG GET does not show it",
			Use:  "Use it where the environment holds secrets, as in a container."},
		{Name: "store-password-file", Group: option.Store, Kind: option.Text(&s.passwordFile, "path"),
			Help: "file whose first line is the password of the store; it is read again for each new connection, and on SIGHUP",
			Use:  "Use it where files hold secrets, or where the password changes while the server runs."},
		{Name: "store-tls-ca-cert-file", Group: option.Store, Kind: option.Text(&s.tls.CACert, "path"),
			Help: "PEM file of the authorities that issue the store's certificates, with rediss; the system's by default",
			Use:  "Set it if a private authority issues them."},
		{Name: "store-tls-cert-file", Group: option.Store, Kind: option.Text(&s.tls.Cert, "path"),
			Help: "PEM file of a certificate for connections to the store, if it asks for one",
			Use:  "Set it with --store-tls-key-file."},
		{Name: "store-tls-key-file", Group: option.Store, Kind: option.Text(&s.tls.Key, "path"),
			Help: "PEM file of that certificate's key",
			Use:  "Set it with --store-tls-cert-file."},
		{Name: "store-timeout", Group: option.Store, Kind: option.Time(&s.timeout, time.Millisecond, 1, 60_000),
			Help: "milliseconds that a call may take in the store; KEYS, SCAN, DBSIZE, RANDOMKEY and FLUSHDB may take longer",
			Use:  "Raise it if the store is far away; lower it if clients would rather have an error sooner."},
		{Name: "store-known", Group: option.Store, Kind: option.Number(&s.known, 0, 10_000_000),
			Help: "keys whose values are remembered, so that the next call on them costs the store one request, in place of two or a script",
			Use:  "Raise it if more keys than this are used again and again; lower it if memory is short."},
		{Name: "store-cache-denials", Group: option.Store,
			Kind: option.Time(&s.cacheDenials, time.Millisecond, 0, 10_000),
			Help: "milliseconds for which a limiter may be denied by a remembered value, without asking the store; 0: never",
			Use:  "Set it if calls that are denied anyway overload the store."},
		{Name: "store-lease", Group: option.Store, Kind: option.Time(&s.lease, time.Millisecond, 0, 1000),
			Help: "milliseconds for which tokens of a limit that is used often are taken ahead, and spent without the store; 0: never",
			Use:  "Set it if a few keys make most of the load of the store, and replies may be so old."},
		{Name: "store-may-evict", Group: option.Store, Kind: option.YesNo(&s.mayEvict),
			Help: "use a server although its maxmemory-policy lets it remove keys, and their limits with them",
			Use:  "Use it if the server is shared with a cache whose policy you cannot change."},
		{Name: "store-allow-flush", Group: option.Store, Kind: option.YesNo(&s.allowFlush),
			Help: "let FLUSHALL and FLUSHDB remove the keys with the prefix in the store",
			Use:  "Use it in tests, which empty the store between them."},
	}
}

// hidden is a Kind that does not show the value.
type hidden struct{ option.Kind }

func (hidden) String() string { return "" }
func (hidden) Show() string   { return "" }

// storeURL is the Kind of --store. It does not show user and password.
type storeURL struct {
	option.Kind
	of *storeOptions
}

func (u storeURL) String() string { return u.Show() }

func (u storeURL) Show() string {
	if u.of.isInMemory() {
		return u.of.url
	}
	address, err := backend.ParseAddress(u.of.url)
	if err != nil {
		return ""
	}
	return address.String()
}

func (s *storeOptions) isInMemory() bool { return s.url == inMemory || s.url == "" }

// maxRemoteLog bounds the entries of a log in another program, because a call sends all of them.
const maxRemoteLog = 4000

// checkStore checks the options about the store, and lowers the ones that a store in another program bounds.
func (c *config) checkStore() error {
	if c.store.isInMemory() {
		return nil
	}
	address, err := backend.ParseAddress(c.store.url)
	if err != nil {
		return fmt.Errorf("--store: %w", err)
	}
	if err := backend.CheckPrefix(c.store.prefix); err != nil {
		return fmt.Errorf("--store-prefix: %w", err)
	}
	if c.commands.Persistence.Dir != "" {
		return errors.New("--dir and --store cannot be used together: the keys are in that store, which saves them")
	}
	if c.store.password != "" && c.store.passwordFile != "" {
		return errors.New("--store-password and --store-password-file cannot be used together")
	}
	if err := c.store.checkTLS(address.TLS); err != nil {
		return err
	}
	l := &c.commands.Limiter
	if l.MaxLogLimit > maxRemoteLog && l.MaxLogLimit != newConfig().commands.Limiter.MaxLogLimit {
		return fmt.Errorf("--max-log-limit: with --store it is at most %d, because a call sends the whole log", maxRemoteLog)
	}
	l.MaxLogLimit = min(l.MaxLogLimit, maxRemoteLog)
	if address.Kind == backend.Cluster {
		c.databases = 1
	}
	return nil
}

// checkTLS checks the files for TLS to the store. They are read again for each connection.
func (s *storeOptions) checkTLS(used bool) error {
	if s.hasTLSFiles() && !used {
		return errors.New("--store-tls-ca-cert-file, --store-tls-cert-file and --store-tls-key-file need a store over TLS: " +
			"its URL begins with rediss")
	}
	_, err := s.tls.Config()
	return err
}

func (s *storeOptions) hasTLSFiles() bool {
	return s.tls.CACert != "" || s.tls.Cert != "" || s.tls.Key != ""
}

// connectionsPerPrimary is the number of connections to each primary and database.
const connectionsPerPrimary = 2

// bytesPerKnownKey bounds the memory of the values that are remembered, per key of --store-known.
const bytesPerKnownKey = 256

// verifyTimeout bounds the time in which a start asks the store whether it evicts keys.
const verifyTimeout = 5 * time.Second

// open returns the store in another program. If that cannot be reached, the server starts nevertheless.
func (s *storeOptions) open(ctx context.Context, databases int, log *slog.Logger) (store.Store, error) {
	address, err := backend.ParseAddress(s.url)
	if err != nil {
		return nil, fmt.Errorf("--store: %w", err)
	}
	clock := store.NewClock()
	b, err := backend.Open(backend.Config{
		Address: address, Prefix: s.prefix, Password: s.password, PasswordFile: s.passwordFile,
		TLS: s.tls.Config, MayEvict: s.mayEvict == "yes", Now: clock.Now, Log: log,
	})
	if err != nil {
		return nil, fmt.Errorf("--store: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	if err := b.Verify(ctx); err != nil {
		b.Close()
		return nil, fmt.Errorf("--store: %w", err)
	}
	timeout := time.Duration(s.timeout) * time.Millisecond
	var breakersOpen atomic.Int64
	engine := remote.NewEngine(remote.EngineOptions{
		Sender: b, Monotonic: clock.Now, Self: rand.Uint64() | 1, Known: s.known,
		KnownBytes:  bytesPerKnownKey * s.known,
		Connections: connectionsPerPrimary, Timeout: timeout, OnBreaker: logBreaker(b, &breakersOpen, log),
		DenialAge: time.Duration(s.cacheDenials) * time.Millisecond,
	})
	if s.passwordFile != "" || s.hasTLSFiles() {
		s.renew = b.Renew
	}
	clocks := remote.NewClocks(clock, b)
	o := remote.Options{
		Executor: engine, Keyspace: b, Clock: clocks, KeyNow: clocks.OfKey, Databases: databases, Prefix: s.prefix,
		KeyTrip: clocks.TripOf, Lease: time.Duration(s.lease) * time.Millisecond, LeasedKeys: s.known,
		WallClock: clocks.Wall,
		Reserved:  b.IsInternal, OwnKey: b.OwnKey, Timeout: timeout, AllowFlush: s.allowFlush == "yes",
		Close:      func() error { engine.Close(b.Close); return nil },
		RoundTrips: b.RoundTrips,
		Describe: func(add func(string, any)) {
			engine.Describe(add)
			add("store_breakers_open", breakersOpen.Load())
			describeServers(b, add)
		},
	}
	if address.Kind == backend.Cluster {
		o.Slot = backend.Slot
	}
	return remote.New(o), nil
}

// logBreaker returns the function that logs that the circuit breaker of a server opens or closes, and counts
// the open ones. It must not block, and neither does the log.
func logBreaker(b *backend.Backend, count *atomic.Int64, log *slog.Logger) func(p combine.Primary, open bool) {
	return func(p combine.Primary, open bool) {
		if open {
			count.Add(1)
			log.Warn("a server of the store does not answer: calls on its keys fail at once", "server", b.Where(p))
			return
		}
		count.Add(-1)
		log.Info("a server of the store answers again", "server", b.Where(p))
	}
}

// describeServers adds to INFO whether a server of the store was reached, and a field for each primary.
func describeServers(b *backend.Backend, add func(name string, value any)) {
	reached := 0
	if b.Reached() {
		reached = 1
	}
	add("store_reached", reached)
	for _, p := range b.Primaries() {
		add(fmt.Sprintf("store_primary_%d", p),
			fmt.Sprintf("round_trip_usec=%d,clock_jumps=%d", b.RoundTrip(p)/1000, b.ClockJumps(p)))
	}
}

// openStore returns the store of --store, and the folder of --dir.
func (c *config) openStore(ctx context.Context, log *slog.Logger,
	holds *meter.MaxCPUTime) (store.Store, *folder, error) {
	if c.store.isInMemory() {
		f, err := c.openMemory(ctx, log, holds)
		if err != nil {
			return nil, nil, err
		}
		return f.data, f, nil
	}
	f, err := c.openFolder(ctx, log) // there is none, but options of a folder are refused
	if err != nil {
		return nil, nil, err
	}
	data, err := c.store.open(ctx, c.databases, log)
	return data, f, err
}

// newLocalStore returns the store of --store-fails local.
func (c *config) newLocalStore() store.Store {
	return memory.New(memory.Options{Databases: c.databases, MaxIDs: c.commands.Limiter.MaxIDs})
}
