package faults

import (
	"fmt"
	"math"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// await waits until a condition is true. It polls often, so that it returns soon after that.
func await(t *testing.T, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, patience, time.Millisecond)
}

// awaitSteps waits until that many more steps have been answered.
func (l *load) awaitSteps(more int) {
	l.t.Helper()
	until := l.answered.Load() + int64(more)
	await(l.t, func() bool { return l.answered.Load() >= until || l.t.Failed() })
}

// awaitPasses waits until INFO has shown that many more passes. The first pass that INFO shows does not count.
func (l *load) awaitPasses(more int) {
	l.t.Helper()
	await(l.t, func() bool { return l.passes.Load() > 0 || l.t.Failed() })
	until := l.passes.Load() + int64(more)
	await(l.t, func() bool { return l.passes.Load() >= until || l.t.Failed() })
}

// anyMoment waits until a random moment: soon after the start, or some time after a pass.
func (l *load) anyMoment() {
	if rand.IntN(3) > 0 {
		l.awaitPasses(1 + rand.IntN(2))
	}
	l.awaitSteps(int(math.Exp(rand.Float64() * math.Log(5000))))
}

// kill ends a server as a crash does. When it is started again, all steps that were answered before
// the promise must be there.
func (l *load) kill(server *peer.Server) (promised time.Duration) {
	server.Signal(syscall.SIGKILL)
	l.end()
	server.Wait()
	require.NotContains(l.t, server.Stderr(), "DATA RACE")
	require.NotContains(l.t, server.Stderr(), "panic")
	return time.Duration(l.promise.Load())
}

// A server that is killed repeatedly, at random moments, keeps all steps that were answered before
// its last synced pass began, and all steps that WAITAOF has confirmed. It never has a part of a
// step.
func TestKills(t *testing.T) {
	dir := t.TempDir()
	l := newLoad(t)
	promised, steps := time.Duration(0), int64(0)
	kills := amount(6, 120)
	for range kills {
		appendfsync := []string{"everysec", "everysec", "no"}[rand.IntN(3)] // if only the process ends, no is enough
		server := peer.Start(t, "--dir", dir, "--appendfsync", appendfsync)
		l.verify(server, promised)
		l.compacts, l.waitaof = rand.IntN(2) == 0, rand.IntN(3) == 0
		l.run(server)
		l.anyMoment()
		promised = l.kill(server)
		steps += l.answered.Load()
	}
	l.verify(peer.Start(t, "--dir", dir, "--loglevel", "nothing"), promised)
	t.Log(kills, "kills,", steps, "steps")
}

// Kills while a snapshot of many keys is written, so that many keys change meanwhile, lose no
// promised step either.
func TestKillsDuringSnapshots(t *testing.T) {
	dir := t.TempDir()
	l := newLoad(t)
	promised := time.Duration(0)
	for i := range amount(4, 60) {
		server := peer.Start(t, "--dir", dir)
		if i == 0 {
			l.addBallast(server)
		}
		l.verify(server, promised)
		l.requireBallast(server)
		l.run(server)
		await(t, func() bool { return l.writing.Load() || t.Failed() })
		l.awaitSteps(int(math.Exp(rand.Float64() * math.Log(5000))))
		promised = l.kill(server)
	}
	server := peer.Start(t, "--dir", dir, "--loglevel", "nothing")
	l.verify(server, promised)
	l.requireBallast(server)
}

// ballast is the number of keys in addition to the clients' keys.
var ballast = amount(50_000, 300_000)

// addBallast writes keys, and waits until they are on the disk.
func (l *load) addBallast(server *peer.Server) {
	var calls []string
	for i := 0; i < ballast; i += 500 {
		call := "MSET"
		for n := i; n < i+500; n++ {
			call += fmt.Sprintf(" ballast:%d value:%d", n, n)
		}
		calls = append(calls, call)
	}
	replies := ask(l.t, server, append(calls, "WAITAOF 1 0 0")...)
	require.Equal(l.t, "[1, 0]", replies[len(replies)-1])
}

func (l *load) requireBallast(server *peer.Server) {
	l.t.Helper()
	require.Equal(l.t, ballast, number(ask(l.t, server, "DBSIZE")[0])-len(l.look(server).in(0)))
	for range 100 {
		n := rand.IntN(ballast)
		require.Equal(l.t, fmt.Sprintf(`"value:%d"`, n), ask(l.t, server, fmt.Sprint("GET ballast:", n))[0])
	}
}
