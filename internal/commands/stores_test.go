package commands_test

import (
	"context"
	"fmt"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/commands"
	"cellserver/internal/commands/commandstest"
	"cellserver/internal/store"
	memstore "cellserver/internal/store/memory"
)

// fullView is a view with all optional abilities.
type fullView interface {
	store.View
	store.Swapper
	store.UsageReporter
	store.IdleTracker
}

// unavailableStore executes transactions, but reports that it is unavailable unless answers is
// true.
type unavailableStore struct {
	*memstore.Store
	answers *bool
}

func (s unavailableStore) View() store.View {
	return unavailableView{s.Store.View().(fullView), s.answers}
}

type unavailableView struct {
	fullView
	answers *bool
}

func (v unavailableView) Atomically(ctx context.Context, places []store.KeyRef, all bool, steps func() error) error {
	err := v.fullView.Atomically(ctx, places, all, steps)
	if !*v.answers {
		err = store.ErrUnavailable
	}
	return err
}

// If the store is unavailable, a client gets one error in place of the whole reply, and its
// connection stays usable.
func TestUnavailableStore(t *testing.T) {
	answers := true
	s, err := commandstest.NewOver(t, unavailableStore{memstore.New(memstore.Options{SweepEvery: -1}), &answers},
		func(*commands.Settings) {})
	require.NoError(t, err)
	c := s.Connect()
	c.Do(t, "MSET a 1 b 2")
	for _, call := range []string{"MSET a 3 c 4", "MSETNX d 1 e 2", "MGET a b", "RENAME a f", "SWAPDB 0 1"} {
		answers = false
		require.Equal(t, storeUnsure, c.Do(t, call), call)
		answers = true
		require.Equal(t, "+PONG\r\n", c.Do(t, "PING"))
	}
	for _, slow := range []string{"", "KEYS *"} { // on the event loop, and outside it
		require.Equal(t, "+OK\r\n", c.Do(t, "WATCH w"))
		c.Do(t, "MULTI")
		for _, call := range []string{"INCR n", "PUBLISH ch m", slow} {
			if call != "" {
				require.Equal(t, "+QUEUED\r\n", c.Do(t, call))
			}
		}
		answers = false
		require.Equal(t, storeUnsure, c.Do(t, "EXEC"))
		answers = true
		require.Equal(t, "-ERR EXEC without MULTI\r\n", c.Do(t, "EXEC"))
		require.Contains(t, c.Do(t, "INFO clients"), "watching_clients:0\r\n")
	}
}

// If the store does not commit a transaction, its changes outside the store are undone.
func TestTransactionThatIsNotCommittedIsUndone(t *testing.T) {
	answers := true
	s, err := commandstest.NewOver(t, unavailableStore{memstore.New(memstore.Options{SweepEvery: -1}), &answers},
		func(*commands.Settings) {})
	require.NoError(t, err)
	c, other := s.Connect(), s.Connect()
	client := regexp.MustCompile(`(name|db|sub|psub|resp|flags)=\S*`)
	state := func() string {
		return fmt.Sprint(client.FindAllString(c.Do(t, "CLIENT INFO"), -1), c.Do(t, "CLIENT TRACKINGINFO"),
			c.Do(t, "CONFIG GET timeout"), c.Do(t, "ACL LIST"))
	}
	c.Do(t, "HELLO 3 SETNAME before")
	c.Do(t, "SUBSCRIBE kept")
	before := state()
	c.Do(t, "MULTI")
	for _, call := range []string{"SELECT 1", "SUBSCRIBE new", "PSUBSCRIBE n*", "UNSUBSCRIBE kept",
		"CLIENT SETNAME after", "CONFIG SET timeout 100", "ACL SETUSER u", "ACL SETUSER default -get",
		"CLIENT TRACKING ON OPTOUT", "CLIENT CACHING NO", "HELLO 2"} {
		require.Equal(t, "+QUEUED\r\n", c.Do(t, call))
	}
	answers = false
	require.Contains(t, c.Do(t, "EXEC"), "-STOREUNSURE")
	answers = true
	require.Equal(t, before, state())
	require.Equal(t, ":0\r\n", other.Do(t, "PUBLISH new m"))
	require.Equal(t, ":1\r\n", other.Do(t, "PUBLISH kept m"))
	require.Equal(t, ">3\r\n$7\r\nmessage\r\n$4\r\nkept\r\n$1\r\nm\r\n", commandstest.Pushed(c))
}

// If a transaction that is not committed has ended a client's tracking, the client must discard its
// cache.
func TestRestoredTrackingDiscardsTheCache(t *testing.T) {
	answers := true
	s, err := commandstest.NewOver(t, unavailableStore{memstore.New(memstore.Options{SweepEvery: -1}), &answers},
		func(*commands.Settings) {})
	require.NoError(t, err)
	c := s.ConnectTracking(t, "")
	c.Do(t, "GET k\r\nMULTI\r\nCLIENT TRACKING OFF")
	answers = false
	require.Contains(t, c.Do(t, "EXEC")+commandstest.Pushed(c), "invalidate\r\n_\r\n")
	answers = true
	c.Do(t, "GET k")
	s.Connect().Do(t, "SET k 1")
	require.Equal(t, commandstest.Invalidate("k"), commandstest.Pushed(c))
}

// plainStore is a store without optional abilities.
type (
	plainStore struct{ store.Store }
	plainView  struct{ store.View }
)

func (s plainStore) View() store.View { return plainView{s.Store.View()} }

func TestAbilities(t *testing.T) {
	data := memstore.New(memstore.Options{SweepEvery: -1})
	t.Cleanup(func() { data.Close() })
	require.Equal(t, commandstest.AllAbilities, store.AbilitiesOf(data))
	require.Zero(t, store.AbilitiesOf(plainStore{data}))
	require.Equal(t, store.IsExternal, store.AbilitiesOf(remoteStore{plainStore{data}, t}))
}

// Commands that need an ability that the store does not have are refused with an error that names
// it; other commands work.
func TestStoreWithoutAbilities(t *testing.T) {
	open := func(change func(*commands.Settings)) (*commandstest.Server, error) {
		return commandstest.NewOver(t, plainStore{memstore.New(memstore.Options{SweepEvery: -1})}, change)
	}
	s, err := open(func(*commands.Settings) {})
	require.NoError(t, err)
	c := s.Connect()
	c.Do(t, "SET key value")
	for call, want := range map[string]string{
		"WATCH key":           "+OK\r\n",
		"CLIENT TRACKING ON":  "-ERR the store cannot tell of changes\r\n",
		"SWAPDB 0 1":          "-ERR the store cannot swap databases\r\n",
		"OBJECT IDLETIME key": "-ERR the store does not know when keys were used\r\n",
		"MEMORY STATS":        "-ERR the store does not know how much it holds\r\n",
		"GET key":             "$5\r\nvalue\r\n",
		"CONFIG RESETSTAT":    "+OK\r\n",
	} {
		require.Equal(t, want, c.Do(t, call))
	}
	require.Contains(t, c.Do(t, "INFO"), "used_memory:")
	require.Contains(t, c.Do(t, "CONFIG SET notify-keyspace-events KEA"), "the store cannot tell of changes")
	require.Equal(t, "*2\r\n$22\r\nnotify-keyspace-events\r\n$0\r\n\r\n", c.Do(t, "CONFIG GET notify-keyspace-events"))
	_, err = open(func(s *commands.Settings) { s.Notifications.Events = "KEA" })
	require.ErrorContains(t, err, "notify-keyspace-events: the store cannot tell of changes")
}
