package commands

import (
	"sync"
	"sync/atomic"

	"cellserver/internal/acl"
	"cellserver/internal/client"
	"cellserver/internal/command"
)

// Who may do what: users, and the sessions that are logged in as one.

// accounts are all of them.
type accounts struct {
	commands *acl.Commands
	first    *client.Account // default, which every session is at first
	log      aclLog

	names  sync.RWMutex // for byName, for moments: those who log in must not wait for those who change much
	byName map[string]*client.Account

	mu       sync.Mutex             // for whoever lists users, or changes one: so who has it may read byName without its lock
	channels atomic.Bool            // acl-pubsub-default: a new user may use every channel
	password atomic.Pointer[string] // requirepass, as it was told

	fileMu sync.Mutex // for whoever reads or writes the file: that may take long, and keeps nobody else from anything
	file   ACLFile
}

// ACLFile is where ACL LOAD and ACL SAVE find users.
type ACLFile interface {
	Path() string
	Load() (text string, err error)
	Save(text string) error // all of it, or nothing is changed
}

// begin makes the one user that there is at first.
func (as *accounts) begin(t *command.Table) {
	as.commands = acl.NewCommands(describe(t))
	as.first = &client.Account{Name: "default"}
	as.first.User.Store(as.commands.Default())
	as.byName = map[string]*client.Account{"default": as.first}
	as.log.most = defaultACLLog
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

// closed says whether one has to log in to do anything.
func (as *accounts) closed() bool {
	u := as.first.User.Load()
	return !u.NoPass() || !u.Enabled()
}

// Closed says whether clients need a password.
func (in *Instance) Closed() bool { return !in.accounts.first.User.Load().NoPass() }

// find is the account of a name, nil if there is none.
func (as *accounts) find(name string) *client.Account {
	as.names.RLock()
	defer as.names.RUnlock()
	return as.byName[name]
}

// users are all users. It needs the lock.
func (as *accounts) users() acl.Users {
	all := make(acl.Users, len(as.byName))
	for name, a := range as.byName {
		all[name] = a.User.Load()
	}
	return all
}

// verify is the account that a name and a password are right for, nil if they are not. It was compared with so many.
func (as *accounts) verify(name, password []byte) (a *client.Account, compared int) {
	a = as.find(string(name))
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

// become makes the session one of an account's; nil makes it what it was at first. It is false if the account has gone.
func (s *Session) become(a *client.Account) bool {
	first := s.instance.accounts.first
	logged := a != nil
	if !logged {
		a, logged = first, !s.instance.accounts.closed()
	}
	s.Account.Store(a)
	if s.authenticated = logged; a.User.Load() == nil { // whoever deletes it may have looked at the sessions before
		s.Account.Store(first)
		s.authenticated = false
		logged = false
	}
	s.lookUpRights()
	return logged
}

// lookUpRights says whether calls have to be looked at before they are made. That a user may do less than before is felt by the next
// turn; a session that changes its own rights looks again.
func (s *Session) lookUpRights() {
	u := s.Account.Load().User.Load()
	s.guarded = u == nil || !u.Open() || !s.authenticated
	if s.guarded || s.restricted {
		s.restrict(u == nil || !s.authenticated && s.instance.accounts.closed())
	}
}

// restrict has only short calls read of a client that has not logged in, and one at a time: the next may be longer, if this logs it in.
func (s *Session) restrict(on bool) {
	if s.restricted == on {
		return
	}
	s.restricted = on
	s.reader.Restrict(on)
	if on {
		s.EnterNewcomers()
	} else {
		s.LeaveNewcomers()
	}
}

// set makes a user what it is to be, or adds it, and ends connections that listen to what it may no longer use. It needs the lock.
func (as *accounts) set(in *Instance, u *acl.User, own *client.Client) (ownEnds bool) {
	a := as.byName[u.Name()]
	if a == nil {
		a = &client.Account{Name: u.Name()}
		a.User.Store(u)
		as.names.Lock()
		as.byName[u.Name()] = a
		as.names.Unlock()
		return false
	}
	before := a.User.Load()
	a.User.Store(u)
	if u.HearsAll(before) {
		return false
	}
	return in.endListeners(a, u, own)
}

// endListeners ends the connections of an account's that listen to what it may not use; of the own one it only says so.
func (in *Instance) endListeners(a *client.Account, u *acl.User, own *client.Client) (ownEnds bool) {
	for kind := range client.Vias {
		in.channels.each(kind, func(t *topic) bool {
			if u.MayHear([]byte(t.name), kind == client.ViaPattern) {
				return true
			}
			in.channels.eachSubscriber(t, func(s *client.Client) {
				switch {
				case s.Account.Load() != a:
				case s == own:
					ownEnds = true
				default:
					in.expel(s)
				}
			})
			return true
		}, func() {})
	}
	return ownEnds
}

// eachSubscriber visits those of a topic, without the lock.
func (cs *channels) eachSubscriber(t *topic, visit func(*client.Client)) {
	var found [subscribersAPiece]*subscription
	cs.mu.RLock()
	until := cs.number
	cs.mu.RUnlock()
	for last := uint64(0); last < until; {
		cs.mu.RLock()
		var piece []*subscription
		piece, last = t.subscribers.piece(found[:0], last, until, subscribersAPiece)
		cs.mu.RUnlock()
		for _, sub := range piece {
			visit(sub.session)
		}
	}
}

// drop takes accounts away, and ends the connections that are theirs; of the own one it only says so. It needs the lock.
func (as *accounts) drop(in *Instance, gone []*client.Account, own *client.Client) (ownEnds bool) {
	if len(gone) == 0 {
		return false
	}
	for _, a := range gone {
		a.User.Store(nil)
		as.names.Lock()
		if as.byName[a.Name] == a {
			delete(as.byName, a.Name)
		}
		as.names.Unlock()
	}
	for _, s := range in.clients.All() {
		switch {
		case s.Account.Load().User.Load() != nil:
		case s == own:
			ownEnds = true
		default:
			in.expel(s)
		}
	}
	return ownEnds
}

// expel ends a connection whose rights have gone: from now on nobody sees it, and it gets no message more.
func (in *Instance) expel(s *client.Client) {
	in.clients.Remove(s)
	s.Mail.Mu.Lock()
	s.Mail.Lost = true
	s.DropPushes()
	s.Mail.Waiting.Store(true)
	s.Mail.Mu.Unlock()
	s.Peer.Wake()
	s.Peer.Cut()
}

// replace has other users than before, all at once: a client that logs in meets those or these. As in Redis 8 a client stays if
// its user is still there, with the rules that it has now, and listens to nothing that it may no longer use. It needs the lock.
func (as *accounts) replace(in *Instance, users acl.Users, own *client.Client) (ownEnds bool) {
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
	as.names.Lock()
	for a := range before {
		a.User.Store(users[a.Name])
	}
	as.byName = fresh
	as.names.Unlock()
	for a, was := range before {
		if u := users[a.Name]; !u.HearsAll(was) && in.endListeners(a, u, own) {
			ownEnds = true
		}
	}
	return as.drop(in, gone, own) || ownEnds
}

// stillHears ends a conversation that has just subscribed to what its user may not use: the user's rights were taken away meanwhile,
// and whoever did that may have looked for listeners before.
func stillHears(c *command.Call, kind client.Via, names [][]byte) {
	u := sessionOf(c).Account.Load().User.Load()
	if u != nil && u.Open() {
		return
	}
	for _, name := range names {
		if u == nil || !u.MayHear(name, kind == client.ViaPattern) {
			hangUp(c)
			return
		}
	}
}
