package acl

import (
	"crypto/sha256"
	"crypto/subtle"
	"maps"
	"slices"
)

// User holds the passwords and permissions of a user. It is immutable.
type User struct {
	commands     *Commands
	name         string
	enabled      bool
	noPass       bool
	payload      string // "sanitize-payload" or "skip-sanitize-payload", shown as in Redis; it has no effect here
	passwords    []digest
	selectors    []*selector // the first one is the root selector, which the user's own rules change
	unrestricted bool        // every command, key and channel is allowed
}

// digest is the SHA-256 of a password. Passwords themselves are not kept.
type digest [sha256.Size]byte

// MaxPassword is the length of the longest password, in bytes. A client that is not authenticated
// could not send a longer one, and hashing it would take long.
const MaxPassword = 16384

// Default returns the initial user of every connection on a server without configuration. It may do
// everything, with any password or none.
func (c *Commands) Default() *User {
	u, _ := c.New("default", false).With([]string{"on", "nopass", "~*", "&*", "+@all"}, false) // these rules are valid
	return u
}

// New returns a user without any permission, except that with channels it may use every channel
// (acl-pubsub-default).
func (c *Commands) New(name string, channels bool) *User {
	return &User{commands: c, name: name, selectors: []*selector{c.newSelector(channels)}}
}

// Name returns the user's name.
func (u *User) Name() string { return u.name }

// Passwords returns the number of passwords.
func (u *User) Passwords() int { return len(u.passwords) }

// Enabled reports whether clients may log in as this user.
func (u *User) Enabled() bool { return u.enabled }

// NoPass reports whether the user is accepted with any password.
func (u *User) NoPass() bool { return u.noPass }

// Unrestricted reports whether the user may do everything, so that calls need not be checked.
func (u *User) Unrestricted() bool { return u.unrestricted }

// Verify reports whether a password is right; a nil user stands for one that does not exist. It
// takes about the same time for right and wrong passwords, and for users that do not exist.
func (u *User) Verify(password []byte) bool {
	if len(password) > MaxPassword {
		password = password[:MaxPassword+1] // no user has it
	}
	hash := digest(sha256.Sum256(password))
	if u == nil {
		var none digest
		subtle.ConstantTimeCompare(hash[:], none[:])
		return false
	}
	match := 0
	for i := range u.passwords {
		match |= subtle.ConstantTimeCompare(hash[:], u.passwords[i][:])
	}
	return u.enabled && (u.noPass || match == 1)
}

// selector is a set of permissions. A call is allowed if at least one selector of the user allows
// all of it.
type selector struct {
	allowed        bits
	futureCommands bool             // set by +@all: commands that are added later are allowed too
	firstArgs      map[int][]string // of commands not allowed as a whole: the first arguments with which they are
	// absent has the rules about what only Redis has, in their order: @category without commands here, or a command.
	// They are described, so that a user who is copied to a Redis has these rights there, or fewer.
	absent      []string
	allKeys     bool
	keys        []keyPattern
	allChannels bool
	channels    []string
}

// keyPattern allows an access to the keys that match a pattern.
type keyPattern struct {
	pattern string
	bytes   []byte // the pattern again, so that a check need not allocate
	access  Access
}

// Access is the set of the ways in which a call uses a key.
type Access uint8

const (
	Read  Access = 1 << iota // reads the value
	Write                    // creates, changes or removes the value
)

func (c *Commands) newSelector(channels bool) *selector {
	return &selector{allowed: make(bits, (len(c.list)+63)/64), allChannels: channels}
}

func (s *selector) clone() *selector {
	copied := *s
	copied.allowed = slices.Clone(s.allowed)
	copied.keys, copied.channels = slices.Clone(s.keys), slices.Clone(s.channels)
	copied.firstArgs, copied.absent = maps.Clone(s.firstArgs), slices.Clone(s.absent)
	for n, words := range copied.firstArgs {
		copied.firstArgs[n] = slices.Clone(words)
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

// size returns the number of passwords, patterns, selectors and first arguments of the user.
func (u *User) size() int {
	n := len(u.passwords)
	for _, s := range u.selectors {
		n += 1 + len(s.keys) + len(s.channels)
		for _, words := range s.firstArgs {
			n += len(words)
		}
	}
	return n
}

// isUnrestricted reports whether one selector alone allows everything.
func (u *User) isUnrestricted() bool {
	return slices.ContainsFunc(u.selectors, func(s *selector) bool {
		for n := range u.commands.list {
			if !s.allowed.has(n) {
				return false
			}
		}
		return s.allKeys && s.allChannels
	})
}
