//go:build !race

package remote_test

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"cellserver/internal/commands"
	"cellserver/internal/store"
	"cellserver/internal/store/memory"
	"cellserver/internal/store/remote"
	"cellserver/internal/store/remote/combine"
	"cellserver/internal/store/storetest"
)

// wire executes steps over RESP, one by one, with WATCH, MULTI and EXEC: slowly, but on a server
// that answers as Redis does.
type wire struct {
	clock   *store.StillClock
	latest  atomic.Int64
	clients []*redis.Client // one for each database
}

func newWire(t *testing.T, clock *store.StillClock, databases int, addr string) *wire {
	w := &wire{clock: clock}
	for database := range databases {
		c := redis.NewClient(&redis.Options{
			Addr: addr, DB: database, Protocol: 2, DisableIdentity: true, MaxRetries: -1, ReadTimeout: time.Minute,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		w.clients = append(w.clients, c)
	}
	return w
}

// Now and Offset make it the clock of the backend, which never runs backwards.
func (w *wire) Now() int64 {
	for {
		latest, now := w.latest.Load(), w.clock.Now()
		if now <= latest || w.latest.CompareAndSwap(latest, now) {
			return max(latest, now)
		}
	}
}

func (w *wire) Offset() int64    { return 0 }
func (w *wire) Monotonic() int64 { return w.clock.Now() }

// Submit implements remote.Executor.
func (w *wire) Submit(s *combine.Step) {
	go func() {
		if s.Raw != nil {
			s.Done(w.command(s))
			return
		}
		for {
			failed, err := w.try(s)
			if errors.Is(err, redis.TxFailedErr) {
				continue
			}
			if err != nil {
				err = &combine.RefusedError{Reply: err.Error()}
			}
			s.Done(nil, errors.Join(failed, err))
			return
		}
	}()
}

// try makes one try of a step. The first error is that of the step.
func (w *wire) try(s *combine.Step) (failed, err error) {
	err = w.clients[s.Database].Watch(ctx, func(tx *redis.Tx) error {
		values, err := readAll(tx, s.Keys)
		if err != nil {
			return err
		}
		changes := make([]combine.Change, len(values))
		if failed = s.Run(w.Now(), values, changes); failed != nil {
			return nil
		}
		_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Ping(ctx) // EXEC compares the keys even if nothing changes
			for i, key := range s.Keys {
				if change := arguments(key, changes[i]); change != nil {
					p.Do(ctx, change...)
				}
			}
			return nil
		})
		return err
	}, s.Keys...)
	return failed, err
}

// readAll reads what keys hold.
func readAll(tx *redis.Tx, keys []string) ([]combine.Value, error) {
	p := tx.Pipeline()
	values, held, ends := make([]combine.Value, len(keys)), make([]*redis.StringCmd, len(keys)),
		make([]*redis.Cmd, len(keys))
	for i, key := range keys {
		held[i], ends[i] = p.Get(ctx, key), p.Do(ctx, "PEXPIRETIME", key)
	}
	if _, err := p.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	for i := range keys {
		values[i].Expires = store.Never
		if ms, _ := ends[i].Int64(); ms >= 0 {
			values[i].Expires = ms * int64(time.Millisecond)
		}
		if held[i].Err() == nil {
			values[i].Bytes = unescape(append([]byte{}, held[i].Val()...))
		}
	}
	return values, nil
}

// arguments returns the command that makes a change, nil if there is none.
func arguments(key string, c combine.Change) []any {
	switch {
	case c.Op == combine.Remove:
		return []any{"DEL", key}
	case c.Op == combine.Keep:
		return nil
	case c.Expires == combine.KeepExpiry:
		return []any{"SET", key, escape(c.Bytes), "KEEPTTL"}
	case c.Expires == store.Never:
		return []any{"SET", key, escape(c.Bytes)}
	}
	return []any{"SET", key, escape(c.Bytes), "PXAT", (c.Expires + 999_999) / 1_000_000}
}

// The server is a cellserver, which refuses values with the mark of its own limiters, so values are
// escaped.
func escape(value []byte) []byte   { return remark(value, "\x00cl", "\x01cl") }
func unescape(value []byte) []byte { return remark(value, "\x01cl", "\x00cl") }

func remark(value []byte, from, to string) []byte {
	if rest, marked := bytes.CutPrefix(value, []byte(from)); marked {
		return append([]byte(to), rest...)
	}
	return value
}

func (w *wire) command(s *combine.Step) (any, error) {
	var words []any
	for _, word := range s.Raw {
		words = append(words, escape(word))
	}
	reply, err := w.clients[s.Database].Do(ctx, words...).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return nil, nil
	case err != nil:
		return nil, &combine.RefusedError{Reply: err.Error()}
	}
	return reply, nil
}

// The methods below implement remote.Keyspace.

func (w *wire) DBSize(ctx context.Context, database int) (int64, error) {
	return w.clients[database].DBSize(ctx).Result()
}

func (w *wire) Scan(ctx context.Context, database int, cursor uint64, pattern string, count int) (
	[]string, uint64, error,
) {
	return w.clients[database].Scan(ctx, cursor, pattern, int64(count)).Result()
}

func (w *wire) RandomKey(ctx context.Context, database int) (string, bool, error) {
	key, err := w.clients[database].RandomKey(ctx).Result()
	if errors.Is(err, redis.Nil) {
		return "", false, nil
	}
	return key, err == nil, err
}

func (w *wire) Flush(ctx context.Context, database int) (int64, error) {
	return 0, w.clients[database].FlushDB(ctx).Err()
}

// startCellserver starts a cellserver in this process, whose keys are in memory, and returns its
// address.
func startCellserver(t *testing.T, clock store.Clock) string {
	data := memory.New(memory.Options{Clock: clock, SweepEvery: -1})
	t.Cleanup(func() { require.NoError(t, data.Close()) })
	return serve(t, commands.Config{Store: data})
}

// The view keeps the contract over a server that speaks Redis's protocol: a cellserver, whose time the
// cases can move. With the race detector it would take a minute, and the tests of the other stores
// run with it already.
func TestRemoteKeepsTheContractOverTheWire(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, clock store.Clock) store.Store {
		w := newWire(t, clock.(*store.StillClock), 16, startCellserver(t, clock))
		s := remote.New(remote.Options{Executor: w, Keyspace: w, Clock: w, AllowFlush: true})
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	})
}
