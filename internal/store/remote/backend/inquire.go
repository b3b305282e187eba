package backend

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"cellserver/internal/store/remote/combine"
)

// About is what a connection finds out about its server.
type About struct {
	Version string // the server's own, such as "valkey 8.1.1"; empty if it is not known
	RunID   string // of the server's process
	Policy  string // its maxmemory-policy; empty if it cannot be asked
	// Native says that the server compares and sets with SET IFEQ. Otherwise a script does it.
	Native bool
}

// noEviction is the maxmemory-policy with which no key is removed before it expires.
const noEviction = "noeviction"

// inquire asks the server what it is, and whether it can be used.
func (c *connection) inquire(ctx context.Context) (About, error) {
	key := c.backend.internalKey(c.backend.topology.probeSlot(c.server.number), "probe")
	probe := newCommand("set", key, "x", "ifeq", "y", "get")
	server, memory := newCommand("info", "server"), newCommand("info", "memory")
	load := loadScripts()
	if err := c.run(ctx, append([]redis.Cmder{probe, server, memory}, load...)); err != nil {
		return About{}, err
	}
	c.noteLoaded(func(i int) error { return load[i].Err() })
	native, err := readProbe(probe.Err(), c.backend.config.Address.Kind == Cluster)
	if err != nil {
		return About{}, err
	}
	policy, err := c.evictionPolicy(ctx, memory.Cmd)
	if err != nil {
		return About{}, err
	}
	about := About{Version: version(server.Cmd), RunID: infoField(server.Cmd, "run_id"), Policy: policy, Native: native}
	if err := c.backend.judgePolicy(c, about.Policy); err != nil {
		return about, err
	}
	c.native = native
	return about, nil
}

// readProbe reads the reply to a SET IFEQ that changes nothing, and reports whether the server knows the command. A
// server that refuses writes at the moment, for example because its memory is full, does not tell; then native is
// false. Neither does a cluster node without the slot, such as a new node that is just getting its first slot.
func readProbe(err error, inCluster bool) (native bool, _ error) {
	if err == nil || errors.Is(err, redis.Nil) {
		return true, nil
	}
	switch outcome, word := classify(err.Error()); {
	case word == "READONLY":
		return false, errors.New("the server is a replica, which accepts no writes: the store needs the primary")
	case word == "NOPERM":
		return false, fmt.Errorf("the store's user lacks a right (%w); it needs: %s", err, Rule("PREFIX"))
	case inCluster && (outcome == outcomeMoved || outcome == outcomeAsk):
		return false, nil
	case outcome == outcomeMoved:
		return false, errors.New("the server is a node of a cluster: the store's URL begins with redis+cluster:// then")
	case outcome == outcomeLater || word == "BUSY" || word == "NOAUTH":
		return false, err
	}
	return false, nil
}

func loadScripts() (commands []redis.Cmder) {
	for _, script := range scripts {
		commands = append(commands, newCommand("script", "load", script))
	}
	return commands
}

// noteLoaded keeps the reply of a server that has refused to load one of the scripts.
func (c *connection) noteLoaded(result func(script int) error) {
	c.unloaded, c.loadError = false, ""
	for i := range scripts {
		if err := result(i); err != nil && isReply(err) {
			c.loadError = err.Error()
		}
	}
}

// version returns the name and the version of a server. Valkey reports a version of Redis as well.
func version(info *redis.Cmd) string {
	if v := infoField(info, "valkey_version"); v != "" {
		return "valkey " + v
	}
	if v := infoField(info, "cellserver_version"); v != "" {
		return "cellserver " + v
	}
	if v := infoField(info, "redis_version"); v != "" {
		return "redis " + v
	}
	return ""
}

// infoField returns a field of a reply to INFO, empty if it is not there.
func infoField(info *redis.Cmd, name string) string {
	text, _ := info.Val().(string)
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(line, name+":"); found {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// evictionPolicy reads the maxmemory-policy from INFO, or asks CONFIG, which hosted servers often do
// not allow. It is empty if neither says it.
func (c *connection) evictionPolicy(ctx context.Context, memory *redis.Cmd) (string, error) {
	if policy := infoField(memory, "maxmemory_policy"); policy != "" {
		return policy, nil
	}
	config := newCommand("config", "get", "maxmemory-policy")
	if err := c.run(ctx, []redis.Cmder{config}); err != nil {
		return "", err
	}
	if pair, _ := config.Val().([]any); len(pair) == 2 {
		return fmt.Sprint(pair[1]), nil
	}
	return "", nil
}

// judgePolicy refuses a server that evicts keys, unless the configuration accepts it: a limiter whose key
// is evicted lets its client through.
func (b *Backend) judgePolicy(c *connection, policy string) error {
	switch {
	case policy == noEviction || b.config.MayEvict:
		return nil
	case policy == "":
		b.warnOnce(c.server, "store: the server does not say its maxmemory-policy; with any other than noeviction, "+
			"it may remove keys, and their limits with them", c.address)
		return nil
	}
	return &EvictionError{Address: c.address, Policy: policy}
}

// EvictionError says that a server may remove keys before they expire.
type EvictionError struct{ Address, Policy string }

func (e *EvictionError) Error() string {
	return fmt.Sprintf("the maxmemory-policy of %s is %s, with which it removes keys when its memory is full, and a limit whose "+
		"key is removed lets every client through: set it to noeviction, or accept this with --store-may-evict", e.Address, e.Policy)
}

// Verify connects to all primaries, and returns an *EvictionError if one of them may remove keys. A
// server that cannot be reached is not an error: its policy is read when it is reached. If no server
// can be reached, the backend tries until one can, so that Reached reports it although no key is used.
func (b *Backend) Verify(ctx context.Context) error {
	err := b.connectToAll(ctx, nil)
	var evicts *EvictionError
	switch {
	case errors.As(err, &evicts):
		return evicts
	case !b.Reached():
		b.running.Go(func() {
			for !b.Reached() && sleep(b.stop, verifyPause, nil) {
				_ = b.connectToAll(b.stop, nil) // it is logged
			}
		})
	}
	return nil
}

// verifyPause is the time from one try to reach a server to the next.
const verifyPause = time.Second

// connectToAll opens a connection to each primary, calls then, and closes the connection. The error
// names the connections that could not be opened.
func (b *Backend) connectToAll(ctx context.Context, then func(p combine.Primary)) error {
	var errs []error
	if c, ok := b.topology.(*cluster); ok && len(b.Primaries()) == 0 {
		if err := c.read(ctx); err != nil {
			errs = append(errs, err)
		}
	}
	for _, p := range b.Primaries() {
		c, err := b.open(ctx, place{primary: p})
		b.note(p, err)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", b.Where(p), err))
			continue
		}
		c.close()
		if then != nil {
			then(p)
		}
	}
	return errors.Join(errs...)
}

// warnOnce logs a warning about a server, the first time.
func (b *Backend) warnOnce(s *server, text, address string) {
	s.mu.Lock()
	warned := s.warned
	s.warned = true
	s.mu.Unlock()
	if !warned {
		b.config.Log.Warn(text, "address", address)
	}
}
