package remote

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"cellserver/internal/store/remote"
	"cellserver/internal/store/remote/combine"
	"cellserver/test/peer"
)

// engine returns an engine over a backend of its own.
func engine(t *testing.T, url string) *remote.Engine {
	l := open(t, url)
	e := remote.NewEngine(remote.EngineOptions{Sender: l.Backend, Monotonic: now, Self: rand.Uint64(), Known: 100,
		KnownBytes: 1 << 20, Connections: 2, Timeout: time.Minute})
	t.Cleanup(func() { e.Close(l.Close) })
	return e
}

// Two engines add to the same keys, in steps on one key and in steps on two.
func TestEnginesCountTogether(t *testing.T) {
	single := start(t)
	cluster := peer.StartCluster(t, start, 3, false, nil)
	for name, url := range map[string]string{
		"single": "redis://" + single.Addr, "cluster": cluster.URL(),
	} {
		t.Run(name, func(t *testing.T) {
			engines := []*remote.Engine{engine(t, url), engine(t, url)}
			var running sync.WaitGroup
			for _, e := range engines {
				for caller := range 8 {
					running.Go(func() { addOften(t, e, caller) })
				}
			}
			running.Wait()
			sum, held := 0, 0
			for i := range 4 {
				assert.NoError(t, makeStep(engines[0], &combine.Step{Keys: []string{counter(i)},
					Run: func(_ int64, values []combine.Value, _ []combine.Change) (err error) {
						held, err = strconv.Atoi(string(values[0].Bytes))
						return err
					}}))
				sum += held
			}
			assert.Equal(t, 2*8*100*3/2, sum, "half of the steps add to two keys")
		})
	}
}

// counter names keys: 0 and 1 are in one slot, 2 and 3 in another.
func counter(i int) string { return "cl:{" + strconv.Itoa(i/2) + "}" + strconv.Itoa(i) }

// addOften makes 100 steps.
func addOften(t *testing.T, e *remote.Engine, caller int) {
	for i := range 100 {
		keys := []string{counter(caller % 4)}
		if i%2 == 0 {
			keys = append(keys, counter(caller%4^1))
		}
		assert.NoError(t, makeStep(e, &combine.Step{Keys: keys,
			Run: func(_ int64, values []combine.Value, changes []combine.Change) error {
				for k, v := range values {
					n, _ := strconv.Atoi(string(v.Bytes))
					changes[k] = combine.Change{Op: combine.Set, Bytes: []byte(strconv.Itoa(n + 1)), Expires: combine.Never}
				}
				return nil
			}}))
	}
}

// makeStep makes a step and waits for its end. If the step has lost against other steps too often,
// it has changed nothing and is made again.
func makeStep(e *remote.Engine, s *combine.Step) error {
	done := make(chan error, 1)
	s.Done = func(_ any, err error) { done <- err }
	for {
		e.Submit(s)
		if err := <-done; err != combine.ErrDown {
			return err
		}
	}
}
