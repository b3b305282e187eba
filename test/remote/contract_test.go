package remote

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/store"
	storeremote "cellserver/internal/store/remote"
	"cellserver/internal/store/remote/combine"
	"cellserver/internal/store/storetest"
)

// driver runs a machine over a backend, with the time of the steps that a test has set.
type driver struct {
	link  *link
	clock *store.StillClock

	mu      sync.Mutex
	machine *combine.Machine
	now     int64 // what the machine was told last
	wake    *time.Timer
	closed  bool
	sent    sync.WaitGroup
}

func newDriver(l *link, clock *store.StillClock) *driver {
	d := &driver{link: l, clock: clock}
	d.machine = combine.New(combine.Config{
		Topology: d, Self: 1, Known: 1000, KnownBytes: 1 << 20, Connections: 1, Timeout: int64(time.Minute),
	})
	d.wake = time.AfterFunc(time.Hour, func() { d.tell(d.machine.Advance) })
	return d
}

// Primary and Offset implement combine.Topology.
func (d *driver) Primary(key string) combine.Primary   { return d.link.Primary(key) }
func (d *driver) Offset(combine.Primary) (nanos int64) { return d.clock.Now() - d.now }
func (d *driver) Monotonic() int64                     { return now() }

// Submit implements remote.Executor.
func (d *driver) Submit(s *combine.Step) {
	d.tell(func(now int64) { d.machine.Submit(now, s) })
}

// tell calls the machine, and sends what it says.
func (d *driver) tell(call func(now int64)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	d.now = now()
	call(d.now)
	for b := d.machine.Next(d.now); b != nil; b = d.machine.Next(d.now) {
		d.sent.Go(func() {
			d.link.Do(b)
			d.tell(func(now int64) { d.machine.Finish(now, b) })
		})
	}
	if at := d.machine.Wake(); at != combine.Never {
		d.wake.Reset(time.Duration(at - d.now))
	}
}

func (d *driver) close() error {
	d.mu.Lock()
	d.closed = true
	d.wake.Stop()
	d.mu.Unlock()
	d.sent.Wait()
	return nil
}

// The store keeps the contract over a real server. The cases see a time an hour from now, because the
// server's own time passes meanwhile, and no key must expire by it.
func TestStoreKeepsTheContract(t *testing.T) {
	server := start(t)
	storetest.RunWithoutExpiry(t, func(t *testing.T, clock store.Clock) store.Store {
		still := clock.(*store.StillClock)
		still.Advance(time.Duration(time.Now().Add(time.Hour).UnixNano() - still.Now()))
		l := open(t, "redis://"+server.Addr)
		for database := range 16 {
			_, err := l.Flush(t.Context(), database)
			require.NoError(t, err)
		}
		d := newDriver(l, still)
		s := storeremote.New(storeremote.Options{
			Executor: d, Keyspace: l.Backend, Clock: still, Prefix: "cl:", AllowFlush: true, Close: d.close,
		})
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	})
}
