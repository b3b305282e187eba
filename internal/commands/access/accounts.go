// Package access implements AUTH and ACL: users and their rights, the accounts of clients, and the
// log of denied calls.
package access

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"cellserver/internal/acl"
	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/store"
)

// Accounts are the users of a server. An account is a user under one name: clients refer to it, so that
// a change of the user applies to all of them at once.
type Accounts struct {
	Clients *client.Registry
	Clock   store.Clock
	Log     *slog.Logger
	// ClientLog is for messages that clients cause, possibly very often.
	ClientLog *slog.Logger
	// DisconnectListeners disconnects the clients of an account that are subscribed to channels which
	// its user may no longer use. The calling client, own, is not disconnected; the result is true if
	// it should be.
	DisconnectListeners func(a *client.Account, u *acl.User, own *client.Client) (disconnectOwn bool)

	commands  *acl.Commands
	Default   *client.Account // the user "default", which new connections have
	DeniedLog deniedLog

	// namesMu guards byName. It is held for microseconds, so that AUTH does not wait for a change of
	// many users.
	namesMu sync.RWMutex
	byName  map[string]*client.Account

	// mu is held to list users or to change them. byName is changed with both locks held, so either is
	// enough to read it.
	mu       sync.Mutex
	Channels atomic.Bool            // acl-pubsub-default: a new user may use every channel
	password atomic.Pointer[string] // the value of requirepass

	fileMu sync.Mutex // held to read or write the file, which may take long
	File   ACLFile    // nil if there is none
}

// ACLFile is the file of ACL LOAD and ACL SAVE.
type ACLFile interface {
	Path() string
	Load() (text string, err error)
	Save(text string) error // replaces the file as a whole, or not at all
}

// Init makes the user "default". Rules may name the commands of the table.
func (as *Accounts) Init(t *command.Table) {
	as.commands = acl.NewCommands(describe(t))
	as.Default = &client.Account{Name: "default"}
	as.Default.User.Store(as.commands.Default())
	as.byName = map[string]*client.Account{"default": as.Default}
	as.DeniedLog.capacity = defaultLogEntries
	as.password.Store(new(string))
}

// describe converts the rows to the commands of package acl, in the order of their numbers.
func describe(t *command.Table) []acl.Command {
	list := make([]acl.Command, len(t.ByName))
	for _, row := range t.ByName {
		command := acl.Command{Name: row.Name, Parent: -1}
		if row.Parent != nil {
			command.Parent = row.Parent.Number
		}
		for _, category := range row.Categories() {
			command.Categories = append(command.Categories, category[1:])
		}
		list[row.Number] = command
	}
	return list
}

// RequiresAuth reports whether new connections have to authenticate.
func (as *Accounts) RequiresAuth() bool {
	u := as.Default.User.Load()
	return !u.NoPass() || !u.Enabled()
}

// Find returns the account of a name, or nil if there is none.
func (as *Accounts) Find(name string) *client.Account {
	as.namesMu.RLock()
	defer as.namesMu.RUnlock()
	return as.byName[name]
}

// users returns all users. The caller holds mu.
func (as *Accounts) users() acl.Users {
	all := make(acl.Users, len(as.byName))
	for name, a := range as.byName {
		all[name] = a.User.Load()
	}
	return all
}

// Verify checks a name and a password. It returns the account, or nil if one of them is wrong, and
// the number of passwords that were compared, which is the cost of the check.
func (as *Accounts) Verify(name, password []byte) (a *client.Account, compared int) {
	a = as.Find(string(name))
	var u *acl.User
	if a != nil {
		u = a.User.Load()
	}
	if u != nil {
		compared = u.Passwords()
	}
	if !u.Verify(password) {
		return nil, compared
	}
	return a, compared
}

// set adds or replaces a user, and disconnects its clients that are subscribed to channels
// which the user may no longer use: see DisconnectListeners. The caller holds mu.
func (as *Accounts) set(u *acl.User, own *client.Client) (disconnectOwn bool) {
	a := as.byName[u.Name()]
	if a == nil {
		a = &client.Account{Name: u.Name()}
		a.User.Store(u)
		as.namesMu.Lock()
		as.byName[u.Name()] = a
		as.namesMu.Unlock()
		return false
	}
	before := a.User.Load()
	a.User.Store(u)
	if u.AllowsChannelsOf(before) {
		return false
	}
	return as.DisconnectListeners(a, u, own)
}

// remove removes accounts, and disconnects their clients except own; the result is true if own is one of
// them. The caller holds mu.
func (as *Accounts) remove(removed []*client.Account, own *client.Client) (disconnectOwn bool) {
	if len(removed) == 0 {
		return false
	}
	for _, a := range removed {
		a.User.Store(nil)
		as.namesMu.Lock()
		if as.byName[a.Name] == a {
			delete(as.byName, a.Name)
		}
		as.namesMu.Unlock()
	}
	for _, s := range as.Clients.All() {
		switch {
		case s.Account.Load().User.Load() != nil:
		case s == own:
			disconnectOwn = true
		default:
			as.Disconnect(s)
		}
	}
	return disconnectOwn
}

// Disconnect closes the connection of a client whose user may no longer use it. CLIENT LIST does not show
// the client any more, and it gets no more messages.
func (as *Accounts) Disconnect(s *client.Client) {
	as.Clients.Remove(s)
	s.Disconnect()
}

// replace replaces all users at once: a client that authenticates meanwhile sees either all old
// users or all new ones. As in Redis 8, a client stays connected if its user still exists, with the
// new rules, and if it is not subscribed to channels that the user may no longer use. The caller
// holds mu.
func (as *Accounts) replace(users acl.Users, own *client.Client) (disconnectOwn bool) {
	fresh, before := make(map[string]*client.Account), make(map[*client.Account]*acl.User)
	var removed []*client.Account
	for name, a := range as.byName {
		if users[name] == nil {
			removed = append(removed, a)
			continue
		}
		fresh[name], before[a] = a, a.User.Load()
	}
	for name, u := range users {
		if fresh[name] == nil {
			fresh[name] = &client.Account{Name: name}
			fresh[name].User.Store(u)
		}
	}
	as.namesMu.Lock()
	for a := range before {
		a.User.Store(users[a.Name])
	}
	as.byName = fresh
	as.namesMu.Unlock()
	for a, was := range before {
		if u := users[a.Name]; !u.AllowsChannelsOf(was) && as.DisconnectListeners(a, u, own) {
			disconnectOwn = true
		}
	}
	return as.remove(removed, own) || disconnectOwn
}
