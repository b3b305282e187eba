package differential

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"cellserver/internal/racetest"
	"cellserver/test/peer"
)

// These tests play the programs for keys in memory to a cellserver whose keys are in a redis-server
// of its own, and compare the replies with another redis-server's.

// notInStores are calls that differ on purpose if the keys are in a store, by the reason
// (docs/differences.md).
var notInStores = map[string][]string{
	"a step touches keys of one database only": {"MOVE", "SWAPDB"},
	// With a store, a key that changes and changes back, or that changes only its expiry, is unchanged.
	// newStoreWatchProgram writes programs without such changes.
	"WATCH compares what a key holds": {"WATCH"},
}

// notInTransactions are calls that are refused when they are queued.
var notInTransactions = map[string][]string{
	"a transaction touches only keys that are named, of one database": {"SELECT", "KEYS", "FLUSHDB"},
}

// has reports whether the lists contain the name of a command.
func has(lists map[string][]string, name string) bool {
	for _, names := range lists {
		if slices.Contains(names, strings.ToUpper(name)) {
			return true
		}
	}
	return false
}

// forStore makes an author avoid the calls that differ.
func forStore(a *author) *author {
	queues := false // the client may be in a transaction
	a.avoids = func(call []string) bool {
		name := strings.ToUpper(call[0])
		// Another database may be named with any word after COPY's keys.
		if has(notInStores, name) || queues && has(notInTransactions, name) || name == "COPY" && slices.Contains(call, "DB") {
			return true
		}
		switch {
		case name == "MULTI":
			queues = true
		case (name == "EXEC" || name == "DISCARD") && len(call) == 1:
			queues = false
		}
		return false
	}
	return a
}

func newStoreValueProgram(seed uint64) program { return forStore(newAuthor(seed, 1)).valueProgram() }

func newStoreExpiryProgram(seed uint64) program { return forStore(newAuthor(seed, 2)).expiryProgram() }

// watchedForms are calls of several clients that never write a value twice, so that every change of a
// key shows.
var watchedForms = forms(transacts, transacts, reads, `
SET k m
SET k m
SETNX k m
GETSET k m
APPEND k m
MSET k m k m
MSETNX k m k m
SET k m EX 100
SET k m XX`)

func newStoreWatchProgram(seed uint64) (p program) {
	h := newGenerator(seed, 5)
	for range 10 + h.IntN(30) {
		p = append(p, h.turn(h.IntN(clientCount), watchedForms))
	}
	return p
}

// startWithStore starts a redis-server, and a cellserver with its keys in another redis-server.
func startWithStore(t *testing.T) (ours, redis dialer) {
	longest := []string{"--proto-max-bulk-len", "1mb"}
	store := peer.StartRedis(t, longest...)
	server := peer.Start(t, "--store", "redis://"+store.Addr, "--store-allow-flush", "yes", "--store-timeout", "30000")
	return to(server), to(peer.StartRedis(t, longest...))
}

// Random programs get the same replies from a cellserver with a store. CELLSERVER_TEST_PROGRAMS=100000
// makes the run longer, CELLSERVER_TEST_SEED changes the programs, and -run chooses a kind of programs.
func TestRandomProgramsOverAStoreAgainstRedis(t *testing.T) {
	ours, redis := startWithStore(t)
	first, _ := strconv.ParseUint(os.Getenv("CELLSERVER_TEST_SEED"), 10, 64)
	for name, c := range map[string]struct {
		write    func(uint64) program
		programs uint64
	}{
		"protocol": {newProgram, 100}, "values": {newStoreValueProgram, 300}, "expiries": {newStoreExpiryProgram, 10},
		"watched": {newStoreWatchProgram, 30},
	} {
		t.Run(name, func(t *testing.T) {
			programs := c.programs
			if racetest.Enabled {
				programs /= 3
			}
			if n, err := strconv.ParseUint(os.Getenv("CELLSERVER_TEST_PROGRAMS"), 10, 64); err == nil {
				programs = n
			}
			write := func(seed uint64) program { return c.write(first + seed) }
			for _, report := range explore(t, ours, redis, write, programs) {
				t.Error(report)
			}
		})
	}
}
