package remote_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"cellserver/internal/store/remote"
	"cellserver/internal/store/remote/combine"
)

// No step is decided at a time before it was submitted, whatever else the engine does then.
func TestStepsAreNotDecidedEarlier(t *testing.T) {
	var ticks atomic.Int64
	e := remote.NewEngine(remote.EngineOptions{
		Sender: &shelf{keys: map[string][]byte{}}, Monotonic: func() int64 { return ticks.Add(1) }, Self: 1, Known: 100,
		KnownBytes: 1000, Connections: 2, Timeout: time.Minute,
	})
	t.Cleanup(func() { e.Close(func() {}) })
	var callers sync.WaitGroup
	for caller := range 8 {
		callers.Go(func() {
			for range 500 {
				begun, done := ticks.Add(1), make(chan struct{})
				e.Submit(&combine.Step{
					Keys: []string{string(rune('a' + caller%3))},
					Run: func(now int64, _ []combine.Value, _ []combine.Change) error {
						assert.Greater(t, now, begun)
						return nil
					},
					Done: func(any, error) { close(done) },
				})
				<-done
			}
		})
	}
	callers.Wait()
}
