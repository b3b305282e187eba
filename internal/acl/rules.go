package acl

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// A RuleError says which rule is none, and why. Its words are Redis's, but for what Why says.
type RuleError struct {
	Rule    string
	Why     string
	Unknown bool // it names a command or a category that there is not: so it holds no secret
}

func (e *RuleError) Error() string {
	return fmt.Sprintf("Error in ACL SETUSER modifier '%.256s': %s", e.Rule, e.Why)
}

// An UnmatchedError is about a parenthesis that is not closed.
type UnmatchedError struct{ Rule string }

func (e *UnmatchedError) Error() string {
	return fmt.Sprintf("Unmatched parenthesis in acl selector starting at '%.256s'.", e.Rule)
}

// Why a rule is none, in Redis's words where it has some.
const (
	unknown     = "Unknown command or category name in ACL"
	syntax      = "Syntax error"
	afterKeys   = "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. Try 'resetkeys' to start with an empty list of patterns"
	afterAll    = "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. Try 'resetchannels' to start with an empty list of channels"
	noPassword  = "The password you are trying to remove from the user does not exist"
	wrongHash   = "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
	firstOfSub  = "Allowing first-arg of a subcommand is not supported"
	tooLong     = "A password is at most 16384 bytes, a pattern 1024"
	tooManySaid = "A user has at most 4096 passwords, patterns and selectors"
)

// The bounds of a user: what a check may have to look through.
const (
	maxPattern = 1024 // bytes
	maxSize    = 4096 // passwords, patterns, selectors
)

// With is the user with more rules, or why one of them is none. channels is as for New: what
// selectors begin with, and what reset goes back to.
func (u *User) With(rules []string, channels bool) (*User, error) {
	merged, err := merge(rules)
	if err != nil {
		return nil, err
	}
	changed := u.clone()
	for _, rule := range merged {
		if why := changed.apply(rule, channels); why != "" {
			return nil, &RuleError{Rule: rule, Why: why, Unknown: why == unknown}
		}
	}
	changed.open = changed.isOpen()
	return changed, nil
}

// merge puts selectors together that are written as several words, as Redis does.
func merge(rules []string) (merged []string, err error) {
	open, began := "", ""
	for _, rule := range rules {
		closes := strings.HasSuffix(rule, ")")
		switch {
		case strings.HasPrefix(rule, "(") && !closes:
			open, began = rule, rule
		case began == "":
			merged = append(merged, rule)
		case closes:
			merged = append(merged, open+" "+rule)
			began = ""
		default:
			open += " " + rule
		}
	}
	if began != "" {
		return nil, &UnmatchedError{began}
	}
	return merged, nil
}

// apply changes the user by one rule, or says why it is none; then the user is of no more use.
func (u *User) apply(rule string, channels bool) (why string) {
	switch word := strings.ToLower(rule); {
	case rule == "":
		return ""
	case word == "on" || word == "off":
		u.enabled = word == "on"
	case word == "sanitize-payload" || word == "skip-sanitize-payload":
		u.payload = word
	case word == "nopass" || word == "resetpass":
		u.noPass, u.passwords = word == "nopass", nil
	case word == "clearselectors":
		u.selectors = u.selectors[:1]
	case word == "reset":
		*u = User{commands: u.commands, name: u.name, payload: "sanitize-payload",
			selectors: []*selector{u.commands.newSelector(channels)}}
	case strings.ContainsRune("><#!", rune(rule[0])):
		why = u.changePassword(rule[0], rule[1:])
	case rule[0] == '(' && strings.HasSuffix(rule, ")"):
		why = u.addSelector(strings.TrimSuffix(rule[1:], ")"), channels)
	default:
		why = u.selectors[0].apply(u.commands, rule)
	}
	if why == "" && u.size() > maxSize {
		why = tooManySaid
	}
	return why
}

// changePassword adds (> and, as a hash, #) or removes (< and !) a password.
func (u *User) changePassword(how byte, said string) (why string) {
	var hash digest
	switch {
	case how == '>' || how == '<':
		if len(said) > MaxPassword {
			return tooLong
		}
		hash = sha256.Sum256([]byte(said))
	case len(said) != 2*len(hash) || strings.ToLower(said) != said:
		return wrongHash
	default:
		if _, err := hex.Decode(hash[:], []byte(said)); err != nil {
			return wrongHash
		}
	}
	at := slices.Index(u.passwords, hash)
	switch add := how == '>' || how == '#'; {
	case add:
		if u.noPass = false; at < 0 {
			u.passwords = append(u.passwords, hash)
		}
	case at < 0:
		return noPassword
	default:
		u.passwords = slices.Delete(u.passwords, at, at+1)
	}
	return ""
}

// addSelector adds a selector that is given as rules with blanks between. Redis takes quotes in it
// apart; here there are none.
func (u *User) addSelector(rules string, channels bool) (why string) {
	if strings.ContainsAny(rules, "\"'") {
		return syntax
	}
	s := u.commands.newSelector(channels)
	for _, rule := range strings.FieldsFunc(rules, isSpace) {
		if strings.HasSuffix(rule, ")") { // which would end the selector when it is read from a file
			return syntax
		}
		if why := s.apply(u.commands, rule); why != "" {
			return why
		}
	}
	u.selectors = append(u.selectors, s)
	return ""
}

// isSpace is C's isspace.
func isSpace(r rune) bool { return r == ' ' || '\t' <= r && r <= '\r' }

// IsName says whether a user may have such a name; a pattern is held to the same.
func IsName(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool { return isSpace(r) || r == 0 })
}

// apply changes a selector by one rule, or says why it is none.
func (s *selector) apply(c *Commands, rule string) (why string) {
	switch word := strings.ToLower(rule); {
	case word == "allkeys" || word == "~*":
		s.allKeys, s.keys = true, nil
	case word == "resetkeys":
		s.allKeys, s.keys = false, nil
	case word == "allchannels" || word == "&*":
		s.allChannels, s.channels = true, nil
	case word == "resetchannels":
		s.allChannels, s.channels = false, nil
	case word == "allcommands" || word == "+@all":
		s.allowAll(c, true)
	case word == "nocommands" || word == "-@all":
		s.allowAll(c, false)
	case rule == "":
		return syntax
	case rule[0] == '~' || rule[0] == '%':
		return s.addKeys(rule)
	case rule[0] == '&':
		return s.addChannels(rule[1:])
	case rule[0] == '+' || rule[0] == '-':
		return s.changeCommands(c, rule[0] == '+', rule[1:])
	default:
		return syntax
	}
	return ""
}

func (s *selector) allowAll(c *Commands, on bool) {
	for n := range c.list {
		s.allowed.set(n, on)
	}
	s.future, s.firstWords = on, nil
}

// addKeys adds a pattern of keys: ~pattern, or with what may be done %R~pattern, %W~pattern,
// %RW~pattern.
func (s *selector) addKeys(rule string) (why string) {
	if s.allKeys {
		return afterKeys
	}
	access, pattern := Read|Write, rule[1:]
	if rule[0] == '%' {
		if access, pattern = accessOf(rule[1:]); access == 0 {
			return syntax
		}
	}
	if !IsName(pattern) {
		return syntax
	}
	if len(pattern) > maxPattern {
		return tooLong
	}
	at := slices.IndexFunc(s.keys, func(k keyPattern) bool { return k.pattern == pattern })
	if at < 0 {
		s.keys = append(s.keys, keyPattern{pattern, []byte(pattern), access})
	} else {
		s.keys[at].access |= access
	}
	return ""
}

// accessOf reads R, W or both, and then ~ and the pattern; 0 if it is none of that.
func accessOf(text string) (access Access, pattern string) {
	letters, pattern, _ := strings.Cut(text, "~")
	for _, letter := range letters {
		this := map[rune]Access{'r': Read, 'R': Read, 'w': Write, 'W': Write}[letter]
		if this == 0 || access&this != 0 {
			return 0, ""
		}
		access |= this
	}
	return access, pattern
}

func (s *selector) addChannels(pattern string) (why string) {
	switch {
	case s.allChannels:
		return afterAll
	case !IsName(pattern):
		return syntax
	case len(pattern) > maxPattern:
		return tooLong
	case !slices.Contains(s.channels, pattern):
		s.channels = append(s.channels, pattern)
	}
	return ""
}

// changeCommands allows commands or not: @category, command, container|subcommand; or command|word,
// to allow a command with that first word alone. Of commands that Redis alone has nothing follows.
func (s *selector) changeCommands(c *Commands, on bool, name string) (why string) {
	if category, ok := strings.CutPrefix(name, "@"); ok {
		cat := c.category(category)
		if cat == nil {
			return unknown
		}
		for _, n := range cat.members {
			s.allow(c, n, on)
		}
		return ""
	}
	last := strings.LastIndexByte(name, '|')
	if n, ok := c.find(name); ok {
		s.allow(c, n, on)
		return ""
	}
	if isRedis(strings.ToLower(name)) {
		return ""
	}
	if last < 0 || !on {
		return unknown
	}
	n, ok := c.find(name[:last])
	switch word := name[last+1:]; {
	case !ok:
		return unknown
	case c.list[n].Parent >= 0:
		return firstOfSub
	case !IsName(word) || word == "": // or a file would be read as other rules than those that were written
		return syntax
	case c.subs[n] != nil:
		return unknown
	case !slices.ContainsFunc(s.firstWords[n], func(said string) bool { return strings.EqualFold(said, word) }):
		if s.firstWords == nil {
			s.firstWords = make(map[int][]string)
		}
		s.firstWords[n] = append(s.firstWords[n], word)
	}
	return ""
}

// allow allows a command or not, and its subcommands with it.
func (s *selector) allow(c *Commands, n int, on bool) {
	s.allowed.set(n, on)
	delete(s.firstWords, n)
	for _, sub := range c.subs[n] {
		s.allowed.set(sub, on)
	}
}
