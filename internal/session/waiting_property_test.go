package session_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"cellserver/internal/commands"
	"cellserver/internal/session/sessiontest"
	"cellserver/internal/store"
	memstore "cellserver/internal/store/memory"
)

// waitingMachine makes random calls. After each it checks that exactly the calls wait that have to:
// they are in the order of arrival, none was admitted early, and none is forgotten.
type waitingMachine struct {
	server  *sessiontest.Server
	other   *sessiontest.Client
	clients []*sessiontest.Client
	waiting []*waitingCall // in the order of arrival
	paused  bool
}

type waitingCall struct {
	client   *sessiontest.Client
	key      string
	quantity int
	deadline int64
}

// limit is the limit of all calls of the machine: a burst of 5, and one token a second.
const limit = "4 1 1"

func newWaitingMachine(t testing.TB, over store.Store, clock *store.StillClock) *waitingMachine {
	s := newServerOver(t, over, func(*commands.Settings) {})
	m := &waitingMachine{server: s, other: s.Connect()}
	for range 6 {
		m.clients = append(m.clients, s.Connect())
	}
	return m
}

var (
	waitedKeys = rapid.SampledFrom([]string{"a", "b", "c"})
	quantities = rapid.SampledFrom([]int{1, 1, 2, 5})
)

// idle returns a client that does not wait, or nil if all clients wait.
func (m *waitingMachine) idle() *sessiontest.Client {
	for _, c := range m.clients {
		if !slices.ContainsFunc(m.waiting, func(w *waitingCall) bool { return w.client == c }) {
			return c
		}
	}
	return nil
}

// line returns the calls that wait for a key.
func (m *waitingMachine) line(key string) (line []*waitingCall) {
	for _, w := range m.waiting {
		if w.key == key {
			line = append(line, w)
		}
	}
	return line
}

// retryAfter returns the retry_after that a call would get now if no client waited, in
// milliseconds.
func (m *waitingMachine) retryAfter(t require.TestingT, key string, quantity int) (limited bool, ms int) {
	var numbers [5]int
	_, err := fmt.Sscanf(m.other.Ask(t, "CL.THROTTLE %s %s %d PEEK MS", key, limit, quantity), "[%d, %d, %d, %d, %d]",
		&numbers[0], &numbers[1], &numbers[2], &numbers[3], &numbers[4])
	require.NoError(t, err)
	return numbers[0] == 1, numbers[3]
}

// wait makes a call with WAIT.
func (m *waitingMachine) wait(t *rapid.T) {
	c := m.idle()
	if c == nil || m.paused {
		return // in a pause, the call would wait for its end
	}
	w := &waitingCall{client: c, key: waitedKeys.Draw(t, "key"), quantity: quantities.Draw(t, "quantity")}
	ms := rapid.IntRange(1, 9).Draw(t, "seconds") * 1000
	w.deadline = m.server.Clock.Now() + int64(ms)*1e6
	limited, retry := m.retryAfter(t, w.key, w.quantity)
	behind := len(m.line(w.key)) > 0
	line := w.client.Ask(t, "CL.THROTTLE %s %s %d WAIT %d", w.key, limit, w.quantity, ms)
	switch {
	case limited && retry > ms:
		require.True(t, strings.HasPrefix(line, "[1, "), line)
	case limited || behind:
		require.Empty(t, line, "it must wait")
		m.waiting = append(m.waiting, w)
	default:
		require.True(t, strings.HasPrefix(line, "[0, "), line)
	}
}

// check compares the replies with the expected replies. done are the calls that have ended.
func (m *waitingMachine) check(t require.TestingT) {
	now := m.server.Clock.Now()
	for _, w := range slices.Clone(m.waiting) {
		line := w.client.Reply()
		if line == "" {
			require.Less(t, now, w.deadline, "a call waits for too long")
			continue
		}
		first := m.line(w.key)[0] == w
		if strings.HasPrefix(line, "[0, ") {
			require.True(t, first, "a call is admitted before those that wait longer")
			require.False(t, m.paused)
		}
		m.waiting = slices.DeleteFunc(m.waiting, func(other *waitingCall) bool { return other == w })
	}
	for _, key := range []string{"a", "b", "c"} {
		if line := m.line(key); len(line) > 0 && !m.paused {
			limited, _ := m.retryAfter(t, key, line[0].quantity)
			require.True(t, limited, "a call is forgotten")
		}
	}
}

// end ends the wait of a call, without taking anything.
func (m *waitingMachine) end(t *rapid.T, how func(w *waitingCall)) {
	if len(m.waiting) == 0 {
		return
	}
	w := rapid.SampledFrom(m.waiting).Draw(t, "call")
	how(w)
	m.server.Instance.RunWaiting()
}

func (m *waitingMachine) actions() map[string]func(*rapid.T) {
	do := func(format string, quantity ...int) func(t *rapid.T) {
		return func(t *rapid.T) {
			if m.paused {
				return // the call would wait for the end of the pause
			}
			key := waitedKeys.Draw(t, "key")
			require.NotEmpty(t, m.other.Ask(t, strings.NewReplacer("KEY", key, "LIMIT", limit).Replace(format)))
		}
	}
	return map[string]func(*rapid.T){
		"wait": m.wait, "wait too": m.wait, "wait as well": m.wait,
		"":     func(t *rapid.T) { m.check(t) },
		"take": do("CL.THROTTLE KEY LIMIT 1"), "force": do("CL.THROTTLE KEY LIMIT 3 FORCE"),
		"give back": do("CL.THROTTLE KEY LIMIT -1"), "delete": do("DEL KEY"), "flush": do("FLUSHALL"),
		"swap": do("SWAPDB 0 1"), "rename": do("RENAME KEY a"), "copy": do("COPY a KEY REPLACE"),
		"pass":  func(t *rapid.T) { m.pass(rapid.IntRange(1, 20).Draw(t, "tenths")) },
		"pause": m.pause,
		"unblock": func(t *rapid.T) {
			m.end(t, func(w *waitingCall) {
				require.Equal(t, "1", m.other.Ask(t, "CLIENT UNBLOCK %d", w.client.Session.ID))
			})
		},
		"die": func(t *rapid.T) {
			m.end(t, func(w *waitingCall) {
				w.client.Session.Close()
				*w.client = *m.server.Connect()
				m.waiting = slices.DeleteFunc(m.waiting, func(other *waitingCall) bool { return other == w })
			})
		},
	}
}

func (m *waitingMachine) pass(tenths int) {
	_ = m.server.Advance(time.Duration(tenths) * time.Second / 10)
}

func (m *waitingMachine) pause(t *rapid.T) {
	command := "CLIENT PAUSE 3600000 WRITE"
	if m.paused {
		command = "CLIENT UNPAUSE"
	}
	m.paused = !m.paused
	require.Equal(t, "+OK", m.other.Ask(t, command))
}

// deaf is a store that announces no change.
type deaf struct{ *memstore.Store }

func (deaf) Subscribe(store.Listener) (unsubscribe func()) { return func() {} }

// failure notes that a check has failed.
type failure struct{ failed bool }

func (f *failure) Errorf(string, ...any) { f.failed = true }
func (f *failure) FailNow()              { panic("failed") }

// The checks find a call that is forgotten, because the store does not say that its key was deleted.
func TestWaitingMachineFindsAForgottenCall(t *testing.T) {
	for _, isDeaf := range []bool{false, true} {
		clock := store.NewStillClock(clockStart)
		over := memstore.New(memstore.Options{Clock: clock, SweepEvery: -1})
		m := newWaitingMachine(t, over, clock)
		if isDeaf {
			m = newWaitingMachine(t, deaf{over}, clock)
		}
		w := &waitingCall{client: m.clients[0], key: "a", quantity: 1, deadline: clock.Now() + 5e9}
		m.waiting = append(m.waiting, w)
		m.other.Ask(t, "CL.THROTTLE a %s 5", limit)
		require.Empty(t, w.client.Ask(t, "CL.THROTTLE a %s 1 WAIT 5000", limit))
		m.check(t)
		m.other.Ask(t, "DEL a")
		var f failure
		func() {
			defer func() { _ = recover() }()
			m.check(&f)
		}()
		require.Equal(t, isDeaf, f.failed)
	}
}

// Calls that wait are admitted in their order, as soon as they may be and not before.
func TestWaitingMachine(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		clock := store.NewStillClock(clockStart)
		over := memstore.New(memstore.Options{Clock: clock, SweepEvery: -1})
		r.Repeat(newWaitingMachine(t, over, clock).actions())
	})
}
