package backend

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"cellserver/internal/store/remote/combine"
)

// asker is a connection for questions about all keys of a server. Such questions may take long, so
// they are not asked on the connections on which limits are decided.
type asker struct {
	turn       chan struct{}              // holds an element while a question is under way
	connection atomic.Pointer[connection] // nil if there is none; set only in turn
}

// drop closes the connection of an asker whose turn it is.
func (a *asker) drop() {
	if c := a.connection.Swap(nil); c != nil {
		c.close()
	}
}

// askers is the connection number, in a place, of the connections for questions.
const askers = -1

// ask sends commands to a server as one pipeline. Its error is combine.ErrDown if nothing was sent,
// and combine.ErrUnavailable if there was no reply. Errors of single commands are in the commands.
func (b *Backend) ask(ctx context.Context, p combine.Primary, database int, commands ...redis.Cmder) error {
	at := place{p, database, askers}
	a := b.askerAt(at)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.stop, cancel)()
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", combine.ErrDown, ctx.Err())
	}
	c, err := b.connectionOf(ctx, a, at)
	if err != nil {
		b.topology.lost(p)
		return fmt.Errorf("%w: %w", combine.ErrDown, err)
	}
	defer context.AfterFunc(b.stop, c.abort)()
	if err := c.run(ctx, commands); err != nil {
		a.drop()
		b.topology.lost(p)
		return fmt.Errorf("%w: %w", combine.ErrUnavailable, err)
	}
	return nil
}

// connectionOf returns the connection of an asker whose turn it is.
func (b *Backend) connectionOf(ctx context.Context, a *asker, at place) (*connection, error) {
	if c := a.connection.Load(); c != nil && !c.socket.isLost() && c.renew() {
		return c, nil
	}
	a.drop()
	c, err := b.open(ctx, at)
	if err == nil {
		a.connection.Store(c)
	}
	return c, err
}

func (b *Backend) askerAt(at place) *asker {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.askers[at]
	if a == nil {
		a = &asker{turn: make(chan struct{}, 1)}
		b.askers[at] = a
	}
	return a
}

// closeAskers closes the connections for questions. Questions under way end, because the backend is
// closed; to end, they may need b.mu.
func (b *Backend) closeAskers() {
	b.mu.Lock()
	all := slices.Collect(maps.Values(b.askers))
	b.mu.Unlock()
	for _, a := range all {
		a.turn <- struct{}{}
		a.drop()
		<-a.turn
	}
}

// askOne sends one command and returns its reply. A refusal is a *combine.RefusedError.
func (b *Backend) askOne(ctx context.Context, p combine.Primary, database int, args ...any) (any, error) {
	command := newCommand(args...)
	if err := b.ask(ctx, p, database, command); err != nil {
		return nil, err
	}
	if err := command.Err(); err != nil && !errors.Is(err, redis.Nil) {
		return nil, &combine.RefusedError{Reply: err.Error()}
	}
	return command.Val(), nil
}

// A cursor of Scan is the cursor of a server, and the number of that server. Redis and Valkey have a
// slot in the lowest 14 bits of the cursors of a cluster, and above them at most the logarithm of the
// number of keys.
const serverBits = 14

// Scan returns some keys that match a pattern, without the prefix, and the cursor for the next call. The
// first cursor is 0, and 0 means the end. Each call asks one server. The servers are asked in the order
// of their numbers, and new servers have higher numbers, so if a server is replaced meanwhile, its keys
// are not missed. A key whose slot moves to a server that was already asked is missed.
func (b *Backend) Scan(ctx context.Context, database int, cursor uint64, pattern string, count int) (
	keys []string, next uint64, _ error,
) {
	p, inner, any := b.scanned(cursor)
	if !any {
		return nil, 0, combine.ErrDown
	}
	if p == combine.NoPrimary {
		return nil, 0, nil
	}
	reply, err := b.askOne(ctx, p, database,
		"scan", strconv.FormatUint(inner, 10), "match", EscapeGlob(b.config.Prefix)+pattern, "count", count)
	if err != nil {
		return nil, 0, err
	}
	found, inner, err := readScan(reply)
	if err != nil {
		return nil, 0, err
	}
	for _, key := range found {
		if !b.IsInternal(key) {
			keys = append(keys, strings.TrimPrefix(key, b.config.Prefix))
		}
	}
	return keys, b.cursorAfter(p, inner), nil
}

// scanned returns the server of a cursor, and the cursor on that server. If the server holds no slots
// any more, it returns the next server, with the cursor 0. any is false if no server is known.
func (b *Backend) scanned(cursor uint64) (p combine.Primary, inner uint64, any bool) {
	primaries := b.Primaries()
	wanted := combine.Primary(cursor & (1<<serverBits - 1))
	at, found := slices.BinarySearch(primaries, wanted)
	if at == len(primaries) {
		return combine.NoPrimary, 0, len(primaries) > 0
	}
	if found {
		inner = cursor >> serverBits
	}
	return primaries[at], inner, true
}

// cursorAfter returns the cursor after a reply of a server.
func (b *Backend) cursorAfter(p combine.Primary, inner uint64) uint64 {
	if inner != 0 {
		return inner<<serverBits | uint64(p)
	}
	primaries := b.Primaries()
	at, found := slices.BinarySearch(primaries, p)
	if found {
		at++
	}
	if at == len(primaries) {
		return 0
	}
	return uint64(primaries[at])
}

func readScan(reply any) (keys []string, cursor uint64, err error) {
	pair, _ := reply.([]any)
	if len(pair) != 2 {
		return nil, 0, fmt.Errorf("the reply of SCAN is %.100v", reply)
	}
	if cursor, err = strconv.ParseUint(fmt.Sprint(pair[0]), 10, 64); err != nil {
		return nil, 0, fmt.Errorf("the reply of SCAN: %w", err)
	}
	found, _ := pair[1].([]any)
	for _, key := range found {
		keys = append(keys, fmt.Sprint(key))
	}
	return keys, cursor, nil
}

// each calls a function with all keys with the prefix, in portions, for each server. The keys include
// internal keys of the store. A key may come twice.
func (b *Backend) each(
	ctx context.Context, database int, visit func(p combine.Primary, keys []string) (more bool, _ error),
) error {
	const portion = 1000
	primaries := b.Primaries()
	if len(primaries) == 0 {
		return combine.ErrDown
	}
	for _, p := range primaries {
		for cursor := uint64(0); ; {
			reply, err := b.askOne(ctx, p, database,
				"scan", strconv.FormatUint(cursor, 10), "match", EscapeGlob(b.config.Prefix)+"*", "count", portion)
			if err != nil {
				return err
			}
			keys, next, err := readScan(reply)
			if err != nil {
				return err
			}
			if more, err := visit(p, keys); err != nil || !more {
				return err
			}
			if cursor = next; cursor == 0 {
				break
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
	}
	return nil
}

// DBSize returns the number of keys. With a prefix, it has to count them, which takes about a second for
// a million keys on the server, and may count a key twice while the server's table grows.
func (b *Backend) DBSize(ctx context.Context, database int) (keys int64, err error) {
	if b.config.Prefix != "" {
		err = b.each(ctx, database, func(_ combine.Primary, found []string) (bool, error) {
			for _, key := range found {
				if !b.IsInternal(key) {
					keys++
				}
			}
			return true, nil
		})
		return keys, err
	}
	primaries := b.Primaries()
	if len(primaries) == 0 {
		return 0, combine.ErrDown
	}
	for _, p := range primaries {
		reply, err := b.askOne(ctx, p, database, "dbsize")
		if err != nil {
			return 0, err
		}
		n, _ := reply.(int64)
		keys += n
	}
	return keys, nil
}

// RandomKey returns a random key without the prefix. ok is false if there is none. It asks the servers
// for random keys a few times. If all of these have other prefixes, it returns the first key that SCAN
// finds.
func (b *Backend) RandomKey(ctx context.Context, database int) (key string, ok bool, _ error) {
	const tries = 8
	primaries := b.Primaries()
	if len(primaries) == 0 {
		return "", false, combine.ErrDown
	}
	for range tries {
		p := primaries[rand.IntN(len(primaries))]
		reply, err := b.askOne(ctx, p, database, "randomkey")
		if err != nil {
			return "", false, err
		}
		if key, ok = b.ownKey(reply); ok {
			return key, true, nil
		}
	}
	err := b.each(ctx, database, func(_ combine.Primary, found []string) (bool, error) {
		for _, name := range found {
			if key, ok = b.ownKey(name); ok {
				return false, nil
			}
		}
		return true, nil
	})
	return key, ok, err
}

// ownKey returns the name of a key without the prefix, if it is a client's key with that prefix.
func (b *Backend) ownKey(reply any) (string, bool) {
	name, ok := reply.(string)
	if !ok || b.IsInternal(name) {
		return "", false
	}
	return strings.CutPrefix(name, b.config.Prefix)
}

// Flush removes all keys with the prefix from a database, including internal keys of the store. It
// returns how many it has removed. Keys that are created meanwhile may stay.
func (b *Backend) Flush(ctx context.Context, database int) (removed int64, _ error) {
	const rounds = 5 // a slot may move meanwhile
	for range rounds {
		moved := false
		err := b.each(ctx, database, func(p combine.Primary, keys []string) (bool, error) {
			n, some, err := b.unlink(ctx, p, database, keys)
			removed += n
			moved = moved || some
			return true, err
		})
		if err != nil || !moved {
			return removed, err
		}
	}
	return removed, errors.New("slots of the cluster are moving: some keys could not be removed")
}

// unlink removes keys of one server, each by a command of its own, because they are in different slots.
func (b *Backend) unlink(ctx context.Context, p combine.Primary, database int, keys []string) (
	removed int64, moved bool, _ error,
) {
	if len(keys) == 0 {
		return 0, false, nil
	}
	commands := make([]redis.Cmder, len(keys))
	for i, key := range keys {
		commands[i] = newCommand("unlink", key)
	}
	if err := b.ask(ctx, p, database, commands...); err != nil {
		return 0, false, err
	}
	for _, c := range commands {
		if err := c.Err(); err != nil {
			if kind, _ := classify(err.Error()); kind == outcomeRefused {
				return removed, moved, &combine.RefusedError{Reply: err.Error()}
			}
			moved = true
			b.topology.lost(p) // has the slots read again
			continue
		}
		n, _ := c.(command).Val().(int64)
		removed += n
	}
	return removed, moved, nil
}
