// Package access is users and what they may do: the accounts that clients are logged in as, ACL,
// and the log of what was refused.
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

// Who may do what: users, and the sessions that are logged in as one.

// Accounts are all of them.
type Accounts struct {
	Clients *client.Registry
	Clock   store.Clock
	Log     *slog.Logger
	// ClientLog is for what clients cause, which may be very often.
	ClientLog *slog.Logger
	// EndListeners ends the connections of an account that are subscribed to what its user may not
	// use any more; of the own one it only says so.
	DisconnectListeners func(a *client.Account, u *acl.User, own *client.Client) (ownEnds bool)

	commands  *acl.Commands
	Default   *client.Account // default, which every session is at first
	DeniedLog deniedLog

	namesMu sync.RWMutex // for byName, for moments: those who log in must not wait for those who change much
	byName  map[string]*client.Account

	// For whoever lists users, or changes one: so who has it may read byName without its lock.
	mu       sync.Mutex
	Channels atomic.Bool            // acl-pubsub-default: a new user may use every channel
	password atomic.Pointer[string] // requirepass, as it was told

	fileMu sync.Mutex // for whoever reads or writes the file: that may take long, and keeps nobody else from anything
	File   ACLFile
}

// ACLFile is where ACL LOAD and ACL SAVE find users.
type ACLFile interface {
	Path() string
	Load() (text string, err error)
	Save(text string) error // all of it, or nothing is changed
}

// Init makes the one user that there is at first.
func (as *Accounts) Init(t *command.Table) {
	as.commands = acl.NewCommands(describe(t))
	as.Default = &client.Account{Name: "default"}
	as.Default.User.Store(as.commands.Default())
	as.byName = map[string]*client.Account{"default": as.Default}
	as.DeniedLog.capacity = defaultLogEntries
	as.password.Store(new(string))
}

// describe is what rules know of the rows, by their numbers.
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

// RequiresAuth says whether one has to log in to do anything.
func (as *Accounts) RequiresAuth() bool {
	u := as.Default.User.Load()
	return !u.NoPass() || !u.Enabled()
}

// Find is the account of a name, nil if there is none.
func (as *Accounts) Find(name string) *client.Account {
	as.namesMu.RLock()
	defer as.namesMu.RUnlock()
	return as.byName[name]
}

// users are all users. It needs the lock.
func (as *Accounts) users() acl.Users {
	all := make(acl.Users, len(as.byName))
	for name, a := range as.byName {
		all[name] = a.User.Load()
	}
	return all
}

// Verify is the account that a name and a password are right for, nil if they are not. It was
// compared with so many.
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

// set makes a user what it is to be, or adds it, and ends connections that listen to what it may no
// longer use. It needs the lock.
func (as *Accounts) set(u *acl.User, own *client.Client) (ownEnds bool) {
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

// remove takes accounts away, and ends the connections that are theirs; of the own one it only says
// so. It needs the lock.
func (as *Accounts) remove(gone []*client.Account, own *client.Client) (ownEnds bool) {
	if len(gone) == 0 {
		return false
	}
	for _, a := range gone {
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
			ownEnds = true
		default:
			as.Disconnect(s)
		}
	}
	return ownEnds
}

// Disconnect ends a connection whose rights have gone: from now on nobody sees it, and it gets no
// message more.
func (as *Accounts) Disconnect(s *client.Client) {
	as.Clients.Remove(s)
	s.Disconnect()
}

// replace has other users than before, all at once: a client that logs in meets those or these. As
// in Redis 8 a client stays if its user is still there, with the rules that it has now, and listens
// to nothing that it may no longer use. It needs the lock.
func (as *Accounts) replace(users acl.Users, own *client.Client) (ownEnds bool) {
	fresh, before := make(map[string]*client.Account), make(map[*client.Account]*acl.User)
	var gone []*client.Account
	for name, a := range as.byName {
		if users[name] == nil {
			gone = append(gone, a)
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
			ownEnds = true
		}
	}
	return as.remove(gone, own) || ownEnds
}
