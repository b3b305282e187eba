package migrate

import "cellserver/internal/client"

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"cellserver/internal/commands"
	"cellserver/internal/store"
	"cellserver/internal/store/memory"
	"cellserver/test/peer"
)

// place is the environment of a comparison: cellserver, and a model of Redis for what cellserver
// does not have, on one clock that only the test moves.
type place struct {
	t        *testing.T
	clock    *store.StillClock
	instance *commands.Instance
	model    *model
}

const start = 1767225600_000000000 // ns: 2026-01-01 00:00:00 UTC

func newPlace(t *testing.T) *place {
	clock := store.NewStillClock(start)
	data := memory.New(memory.Options{Clock: clock, SweepEvery: -1})
	t.Cleanup(func() { data.Close() })
	instance, err := commands.New(commands.Config{Store: data})
	require.NoError(t, err)
	return &place{t, clock, instance, newModel(clock)}
}

func (p *place) elapsed() time.Duration { return time.Duration(p.clock.Now() - start) }

// at sets the clock to a time from the start. The clock never goes back.
func (p *place) at(elapsed time.Duration) { p.clock.Advance(max(0, elapsed-p.elapsed())) }

// cellserver returns a new client of cellserver, and redis one of the model.
func (p *place) cellserver() *redis.Client { return p.dial(p.talk) }
func (p *place) redis() *redis.Client      { return p.dial(p.model.talk) }

// dial connects a client to one end of a pipe, and the server to the other: a real client library,
// and no socket.
func (p *place) dial(talk func(net.Conn)) *redis.Client {
	return dial(p.t, &redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go talk(far)
		return near, nil
	}})
}

// dial returns a client that repeats nothing, and waits as long as a busy machine takes.
func dial(t *testing.T, o *redis.Options) *redis.Client {
	o.Protocol, o.DisableIdentity, o.MaxRetries, o.ReadTimeout = 2, true, -1, time.Minute
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	c := peer.Client(o)
	t.Cleanup(func() { c.Close() })
	return c
}

// talk is cellserver's transport: bytes in, bytes out. No command here is answered later.
func (p *place) talk(conn net.Conn) {
	defer conn.Close()
	session := p.instance.Open(client.Peer{Remote: "pipe", Local: "pipe", Wake: func() {}, Cut: func() {}})
	defer session.Close()
	for input := make([]byte, 64<<10); ; {
		n, err := conn.Read(input)
		if err != nil {
			return
		}
		session.Feed(input[:n])
		for {
			if _, err := conn.Write(session.Output()); err != nil {
				return
			}
			session.Sent()
			if !session.More() {
				break
			}
			session.Resume()
		}
	}
}

// before calls a function once, when a client is about to send a command of this name. So another
// client's call happens in the middle of this client's, as on a busy server.
func before(rdb *redis.Client, name string, happens func()) {
	rdb.AddHook(&interruption{name, happens})
}

// crash ends the call that it interrupts.
func crash() { panic(crashed{}) }

type crashed struct{}

// crashes makes a call that a crash interrupts: the rest of the call is not executed.
func crashes(calls func()) {
	defer func() {
		if reason := recover(); reason != (crashed{}) {
			panic(reason)
		}
	}()
	calls()
}

type interruption struct {
	name    string
	happens func()
}

func (i *interruption) look(commands ...redis.Cmder) {
	for _, c := range commands {
		if happens := i.happens; c.Name() == i.name && happens != nil {
			i.happens = nil
			happens()
		}
	}
}

func (i *interruption) DialHook(next redis.DialHook) redis.DialHook { return next }

func (i *interruption) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, c redis.Cmder) error {
		i.look(c)
		return next(ctx, c)
	}
}

func (i *interruption) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		i.look(commands...)
		return next(ctx, commands)
	}
}
