package remote_test

import (
	"bytes"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/store"
	"cellserver/internal/store/remote"
	"cellserver/internal/store/remote/combine"
)

// shelf is a backend of engines: keys and their values.
type shelf struct {
	mu    sync.Mutex
	keys  map[string][]byte
	stall chan struct{} // if not nil, the shelf answers nothing before it is closed
}

func (b *shelf) Primary(string) combine.Primary { return 0 }
func (b *shelf) Offset(combine.Primary) int64   { return 0 }

// Do implements remote.Sender.
func (b *shelf) Do(batch *combine.Batch) {
	if b.stall != nil && !batch.Connect {
		<-b.stall
		batch.Failed = true
		for _, r := range batch.Requests {
			r.Reply = combine.Reply{Status: combine.Unknown}
		}
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range batch.Requests {
		r.Reply = combine.Reply{Status: combine.Done}
		for i := range r.Parts {
			b.do(r, &r.Parts[i])
		}
	}
}

func (b *shelf) do(r *combine.Request, p *combine.Part) {
	p.Value = combine.Value{Bytes: b.keys[p.Key], Expires: combine.Never}
	switch {
	case r.Kind == combine.Add:
		v := p.Value
		for _, a := range r.Adds {
			v = a.Apply(r.Now, v)
		}
		b.keys[p.Key] = v.Bytes
	case r.Kind != combine.Write:
	case !bytes.Equal(p.Known, p.Value.Bytes) || (p.Known == nil) != (p.Value.Bytes == nil):
		r.Reply.Status = combine.Conflict
	case p.Op == combine.Set:
		b.keys[p.Key] = p.Bytes
	}
}

// sum adds the numbers in all keys.
func (b *shelf) sum() (sum int) {
	for _, value := range b.keys {
		n, _ := strconv.Atoi(string(value))
		sum += n
	}
	return sum
}

func newEngine(t *testing.T, sender remote.Sender) *remote.Engine {
	e := remote.NewEngine(remote.EngineOptions{Sender: sender, Monotonic: store.NewClock().Now, Self: 1, Known: 100,
		KnownBytes: 1 << 20, Connections: 3, Timeout: time.Minute})
	t.Cleanup(func() { e.Close(func() {}) })
	return e
}

// increment is a step that adds one to a key.
func increment(key string, done func(error)) *combine.Step {
	return &combine.Step{Keys: []string{key}, Done: func(_ any, err error) { done(err) },
		Run: func(_ int64, values []combine.Value, changes []combine.Change) error {
			n, _ := strconv.Atoi(string(values[0].Bytes))
			changes[0] = combine.Change{Op: combine.Set, Bytes: strconv.AppendInt(nil, int64(n+1), 10), Expires: combine.Never}
			return nil
		}}
}

func TestEnginesCountTogether(t *testing.T) {
	const callers, calls = 8, 300
	backend := &shelf{keys: map[string][]byte{}}
	var running sync.WaitGroup
	for range 2 {
		e := newEngine(t, backend)
		for caller := range callers {
			running.Go(func() {
				done := make(chan error)
				for range calls {
					e.Submit(increment(strconv.Itoa(caller%3), func(err error) { done <- err }))
					assert.NoError(t, <-done)
				}
			})
		}
	}
	running.Wait()
	assert.Equal(t, 2*callers*calls, backend.sum())
}

func TestEngineCloses(t *testing.T) {
	backend := &shelf{keys: map[string][]byte{}, stall: make(chan struct{})}
	e := newEngine(t, backend)
	ends := make(chan error, 3)
	step := increment("k", func(err error) { ends <- err })
	step.Raw, step.Run = [][]byte{[]byte("INCR"), []byte("k")}, nil
	e.Submit(step)
	require.Eventually(t, func() bool { return e.Counters().Commands == 1 }, time.Minute, time.Millisecond)
	e.Submit(increment("k", func(err error) { ends <- err }))
	e.Close(func() {
		assert.ErrorIs(t, <-ends, store.ErrDown, "the second was not under way")
		close(backend.stall)
	})
	assert.ErrorIs(t, <-ends, store.ErrUnavailable)
	e.Submit(increment("k", func(err error) { ends <- err }))
	assert.ErrorIs(t, <-ends, store.ErrDown)
}

func TestEngineKeepsDeadlines(t *testing.T) {
	backend := &shelf{keys: map[string][]byte{}, stall: make(chan struct{})}
	e := newEngine(t, backend)
	t.Cleanup(func() { e.Close(func() { close(backend.stall) }) })
	ends := make(chan error, 2)
	for range 2 {
		step := increment("k", func(err error) { ends <- err })
		step.Deadline = e.Monotonic() + int64(20*time.Millisecond)
		e.Submit(step)
	}
	assert.ErrorIs(t, <-ends, store.ErrDown, "only a read was sent")
	assert.ErrorIs(t, <-ends, store.ErrDown)
}

// A step that needs no request ends while all connections are busy.
func TestEngineAnswersWhileItIsBusy(t *testing.T) {
	backend := &shelf{keys: map[string][]byte{}}
	e := remote.NewEngine(remote.EngineOptions{Sender: backend, Monotonic: store.NewClock().Now, Self: 1, Known: 100,
		KnownBytes: 1 << 20, Connections: 1, Timeout: time.Minute, DenialAge: time.Hour})
	ends := make(chan error, 10)
	denied := func() *combine.Step {
		return &combine.Step{Keys: []string{"limited"}, Deniable: true, Done: func(_ any, err error) { ends <- err },
			Run: func(_ int64, _ []combine.Value, changes []combine.Change) error {
				changes[0].Denied = true
				return nil
			}}
	}
	e.Submit(denied())
	require.NoError(t, <-ends, "the value is read")

	backend.stall = make(chan struct{})
	t.Cleanup(func() { e.Close(func() { close(backend.stall) }) })
	e.Submit(increment("k", func(error) {}))
	require.Eventually(t, func() bool { return e.Counters().Reads == 2 }, time.Minute, time.Millisecond)
	e.Submit(denied())
	require.NoError(t, <-ends)
	require.EqualValues(t, 1, e.Counters().Denials)
}
