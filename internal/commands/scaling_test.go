package commands_test

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/client"
	"cellserver/internal/commands"
	"cellserver/internal/commands/commandstest"
	memstore "cellserver/internal/store/memory"
)

// TestScaling prints how much faster two cores are than one, for sessions with separate keys and
// with one common key. For comparison it measures a loop that only counts, which scales as well as
// the machine allows. It does not fail on a time. Run it with -v.
func TestScaling(t *testing.T) {
	if runtime.GOMAXPROCS(0) < 2 {
		t.Log("one core: nothing to compare")
		return
	}
	rounds, takes := 10, 100*time.Millisecond
	if testing.Short() || !testing.Verbose() {
		rounds, takes = 1, 5*time.Millisecond
	}
	memory := memstore.New(memstore.Options{})
	defer memory.Close()
	in, err := commands.New(commands.Config{Store: memory, Version: "1.2.3"})
	require.NoError(t, err)
	for _, run := range []struct {
		name   string
		worker func(number int) func()
	}{
		{"a loop that counts", func(int) func() { return count }},
		{"keys of their own", func(number int) func() { return feeder(in, fmt.Sprint("own", number)) }},
		{"one key for all", func(int) func() { return feeder(in, "hot") }},
	} {
		ratios := make([]float64, rounds)
		for i := range ratios {
			one, two := workFor(takes, run.worker, 1), workFor(takes, run.worker, 2)
			ratios[i] = float64(two) / float64(one)
		}
		slices.Sort(ratios)
		t.Logf("%-20s two cores do %.2f times what one does (median of %d, %.2f to %.2f)", run.name, ratios[rounds/2], rounds,
			ratios[0], ratios[rounds-1])
	}
}

// counted keeps the compiler from removing the loop in count.
var counted atomic.Uint64

func count() {
	n := uint64(1)
	for range 20_000 {
		n = n*6364136223846793005 + 1442695040888963407
	}
	if n == 0 {
		counted.Add(1)
	}
}

// feeder returns a function that sends a session a pipeline of 64 calls, on 64 keys or on one.
func feeder(in *commands.Instance, prefix string) func() {
	s := in.Open(client.Peer{Wake: func() {}, Cut: func() {}})
	var input []byte
	for i := range 64 {
		key := prefix
		if prefix != "hot" {
			key = fmt.Sprint(prefix, i)
		}
		input = append(input, commandstest.Encode([]string{"CL.THROTTLE", key, "15", "30", "60", "1"})...)
	}
	return func() {
		s.Feed(input)
		s.Sent()
	}
}

// workFor runs workers for a time, and returns how many units of work they did together.
func workFor(takes time.Duration, worker func(number int) func(), workers int) (done int64) {
	var all atomic.Int64
	var ready, ended sync.WaitGroup
	var stop atomic.Bool
	start := make(chan struct{})
	for i := range workers {
		work := worker(i)
		ready.Add(1)
		ended.Go(func() {
			ready.Done()
			<-start
			n := int64(0)
			for ; !stop.Load(); n++ {
				work()
			}
			all.Add(n)
		})
	}
	ready.Wait()
	close(start)
	<-time.After(takes)
	stop.Store(true)
	ended.Wait()
	return all.Load()
}
