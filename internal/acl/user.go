package acl

import (
	"crypto/sha256"
	"crypto/subtle"
	"maps"
	"slices"
)

// User is what one may do who says a name and a password. It never changes.
type User struct {
	commands  *Commands
	name      string
	enabled   bool
	noPass    bool
	payload   string // "sanitize-payload", or the contrary, as Redis shows it: here it means nothing
	passwords []digest
	selectors []*selector // the first is the user's own, the root
	open      bool        // every command, key and channel is allowed
}

// digest is a password's SHA-256: passwords themselves are not kept.
type digest [sha256.Size]byte

// MaxPassword is the longest password, in bytes: a longer one could never be said by a client that
// has not said it yet, and to hash it would take long.
const MaxPassword = 16384

// Default is the user that every connection is at first, as a server has it to whom nothing is
// said: it may do everything, with any password or none.
func (c *Commands) Default() *User {
	u, _ := c.New("default", false).With([]string{"on", "nopass", "~*", "&*", "+@all"}, false) // which are rules
	return u
}

// New is a user who may do nothing; channels says whether a new user may use every channel
// (acl-pubsub-default).
func (c *Commands) New(name string, channels bool) *User {
	return &User{commands: c, name: name, selectors: []*selector{c.newSelector(channels)}}
}

// Name is the user's name.
func (u *User) Name() string { return u.name }

// Passwords is how many the user has.
func (u *User) Passwords() int { return len(u.passwords) }

// Enabled says whether one may log in as this user.
func (u *User) Enabled() bool { return u.enabled }

// NoPass says whether any password is right.
func (u *User) NoPass() bool { return u.noPass }

// Open says whether the user may do everything: then nobody need ask Check.
func (u *User) Open() bool { return u.open }

// Verify says whether a password lets one in as this user; nil stands for a user that there is not.
// It takes the same time for a wrong one, and whether the user has that name or a password or not,
// as far as that is in our hands.
func (u *User) Verify(password []byte) bool {
	if len(password) > MaxPassword {
		password = password[:MaxPassword+1] // which is none's
	}
	said := digest(sha256.Sum256(password))
	if u == nil {
		var none digest
		subtle.ConstantTimeCompare(said[:], none[:])
		return false
	}
	right := 0
	for i := range u.passwords {
		right |= subtle.ConstantTimeCompare(said[:], u.passwords[i][:])
	}
	return u.enabled && (u.noPass || right == 1)
}

// selector is a set of permissions. A call is allowed if one selector of the user's allows all of
// it.
type selector struct {
	allowed     bits
	future      bool             // +@all was said: commands that are to come are allowed too
	firstWords  map[int][]string // of commands that are not allowed: words behind the name with which they are
	allKeys     bool
	keys        []keyPattern
	allChannels bool
	channels    []string
}

// keyPattern allows some access to the keys that match.
type keyPattern struct {
	pattern string
	bytes   []byte // the same: to make them of the pattern for each check would take memory
	access  Access
}

// Access is what a call does with a key.
type Access uint8

const (
	Read  Access = 1 << iota // it looks at the value
	Write                    // it makes, changes or removes the value
)

func (c *Commands) newSelector(channels bool) *selector {
	return &selector{allowed: make(bits, (len(c.list)+63)/64), allChannels: channels}
}

func (s *selector) clone() *selector {
	copied := *s
	copied.allowed, copied.keys, copied.channels = slices.Clone(s.allowed), slices.Clone(s.keys), slices.Clone(s.channels)
	copied.firstWords = maps.Clone(s.firstWords)
	for n, words := range copied.firstWords {
		copied.firstWords[n] = slices.Clone(words)
	}
	return &copied
}

func (u *User) clone() *User {
	copied := *u
	copied.passwords = slices.Clone(u.passwords)
	copied.selectors = make([]*selector, len(u.selectors))
	for i, s := range u.selectors {
		copied.selectors[i] = s.clone()
	}
	return &copied
}

// size is how much there is to look through for a user: passwords, patterns, selectors.
func (u *User) size() int {
	n := len(u.passwords)
	for _, s := range u.selectors {
		n += 1 + len(s.keys) + len(s.channels)
		for _, words := range s.firstWords {
			n += len(words)
		}
	}
	return n
}

// isOpen says whether a selector alone allows everything.
func (u *User) isOpen() bool {
	return slices.ContainsFunc(u.selectors, func(s *selector) bool {
		for n := range u.commands.list {
			if !s.allowed.has(n) {
				return false
			}
		}
		return s.allKeys && s.allChannels
	})
}
