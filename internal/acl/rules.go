package acl

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// A RuleError reports an invalid rule. Its message is Redis's, except for some reasons that Redis does not have.
type RuleError struct {
	Rule    string
	Reason  string
	Unknown bool // the rule names an unknown command or category, and hence contains no secret
}

func (e *RuleError) Error() string {
	return fmt.Sprintf("Error in ACL SETUSER modifier '%.256s': %s", e.Rule, e.Reason)
}

// An UnmatchedError reports a selector without a closing parenthesis.
type UnmatchedError struct{ Rule string }

func (e *UnmatchedError) Error() string {
	return fmt.Sprintf("Unmatched parenthesis in acl selector starting at '%.256s'.", e.Rule)
}

// The reasons why a rule is invalid, in the words of Redis where it has the same reason.
const (
	unknown       = "Unknown command or category name in ACL"
	syntax        = "Syntax error"
	afterKeys     = "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. Try 'resetkeys' to start with an empty list of patterns"
	afterAll      = "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. Try 'resetchannels' to start with an empty list of channels"
	noPassword    = "The password you are trying to remove from the user does not exist"
	wrongHash     = "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
	firstArgOfSub = "Allowing first-arg of a subcommand is not supported"
	tooLong       = "A password is at most 16384 bytes, a pattern 1024"
	tooManyRules  = "A user has at most 4096 passwords, patterns and selectors"
)

// These bounds limit the work of a check.
const (
	maxPattern = 1024 // bytes
	maxSize    = 4096 // passwords, patterns and selectors of a user
)

// With returns the user with more rules applied, or an error if one of them is invalid. channels
// has the same meaning as for New, for new selectors and for the rule reset.
func (u *User) With(rules []string, channels bool) (*User, error) {
	merged, err := merge(rules)
	if err != nil {
		return nil, err
	}
	changed := u.clone()
	for _, rule := range merged {
		if reason := changed.apply(rule, channels); reason != "" {
			return nil, &RuleError{Rule: rule, Reason: reason, Unknown: reason == unknown}
		}
	}
	changed.unrestricted = changed.isUnrestricted()
	return changed, nil
}

// merge joins selectors that span several words into one rule each, as Redis does.
func merge(rules []string) (merged []string, err error) {
	selector, first := "", ""
	for _, rule := range rules {
		closes := strings.HasSuffix(rule, ")")
		switch {
		case strings.HasPrefix(rule, "(") && !closes:
			selector, first = rule, rule
		case first == "":
			merged = append(merged, rule)
		case closes:
			merged = append(merged, selector+" "+rule)
			first = ""
		default:
			selector += " " + rule
		}
	}
	if first != "" {
		return nil, &UnmatchedError{first}
	}
	return merged, nil
}

// apply changes the user by one rule, or returns why the rule is invalid. In that case the user may
// be half changed and must be discarded.
func (u *User) apply(rule string, channels bool) (reason string) {
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
		reason = u.changePassword(rule[0], rule[1:])
	case rule[0] == '(' && strings.HasSuffix(rule, ")"):
		reason = u.addSelector(strings.TrimSuffix(rule[1:], ")"), channels)
	default:
		reason = u.selectors[0].apply(u.commands, rule)
	}
	if reason == "" && u.size() > maxSize {
		reason = tooManyRules
	}
	return reason
}

// changePassword adds a password (operator > or, for a hash, #) or removes one (< or !).
func (u *User) changePassword(operator byte, text string) (reason string) {
	var hash digest
	switch {
	case operator == '>' || operator == '<':
		if len(text) > MaxPassword {
			return tooLong
		}
		hash = sha256.Sum256([]byte(text))
	case len(text) != 2*len(hash) || strings.ToLower(text) != text:
		return wrongHash
	default:
		if _, err := hex.Decode(hash[:], []byte(text)); err != nil {
			return wrongHash
		}
	}
	at := slices.Index(u.passwords, hash)
	switch add := operator == '>' || operator == '#'; {
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

// addSelector adds a selector, given as rules separated by spaces. Redis also interprets quotes
// here, which are refused instead.
func (u *User) addSelector(rules string, channels bool) (reason string) {
	if strings.ContainsAny(rules, "\"'") {
		return syntax
	}
	s := u.commands.newSelector(channels)
	for _, rule := range strings.FieldsFunc(rules, isSpace) {
		if strings.HasSuffix(rule, ")") { // it would end the selector when read from a file
			return syntax
		}
		if reason := s.apply(u.commands, rule); reason != "" {
			return reason
		}
	}
	u.selectors = append(u.selectors, s)
	return ""
}

// isSpace is isspace of C.
func isSpace(r rune) bool { return r == ' ' || '\t' <= r && r <= '\r' }

// IsName reports whether a string may be the name of a user. Patterns obey the same rule.
func IsName(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool { return isSpace(r) || r == 0 })
}

// apply changes a selector by one rule, or returns why the rule is invalid.
func (s *selector) apply(c *Commands, rule string) (reason string) {
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
	s.futureCommands, s.firstArgs, s.absent = on, nil, nil
}

// setAbsent keeps a rule about what only Redis has. There is at most one for each name that Redis has.
func (s *selector) setAbsent(name string, on bool) {
	sign := "-"
	if on {
		sign = "+"
	}
	s.absent = append(slices.DeleteFunc(s.absent, func(rule string) bool { return rule[1:] == name }), sign+name)
}

// addKeys adds a key pattern: ~pattern, or with restricted access %R~pattern, %W~pattern or
// %RW~pattern.
func (s *selector) addKeys(rule string) (reason string) {
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

// accessOf parses R, W or both, followed by ~ and the pattern. It returns 0 if the text is not of
// that form.
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

func (s *selector) addChannels(pattern string) (reason string) {
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

// changeCommands allows or denies @category, command, or container|subcommand. With
// command|argument it allows a command only if its first argument is this one. Commands that only
// Redis has are accepted, described, and have no effect.
func (s *selector) changeCommands(c *Commands, on bool, name string) (reason string) {
	if category, ok := strings.CutPrefix(name, "@"); ok {
		cat := c.category(category)
		if cat == nil {
			return unknown
		}
		for _, n := range cat.members {
			s.allow(c, n, on)
		}
		switch {
		case len(cat.members) == 0:
			s.setAbsent("@"+cat.name, on)
		case !on: // the category may have in Redis what was allowed before
			s.absent = slices.DeleteFunc(s.absent, func(rule string) bool { return rule[0] == '+' })
		}
		return ""
	}
	last := strings.LastIndexByte(name, '|')
	if n, ok := c.find(name); ok {
		s.allow(c, n, on)
		return ""
	}
	if isRedis(strings.ToLower(name)) {
		s.setAbsent(strings.ToLower(name), on)
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
		return firstArgOfSub
	case !IsName(word) || word == "": // a space would make it several rules when read from a file
		return syntax
	case c.subs[n] != nil:
		return unknown
	case !slices.ContainsFunc(s.firstArgs[n], func(arg string) bool { return strings.EqualFold(arg, word) }):
		if s.firstArgs == nil {
			s.firstArgs = make(map[int][]string)
		}
		s.firstArgs[n] = append(s.firstArgs[n], word)
	}
	return ""
}

// allow allows or denies a command together with its subcommands.
func (s *selector) allow(c *Commands, n int, on bool) {
	s.allowed.set(n, on)
	delete(s.firstArgs, n)
	for _, sub := range c.subs[n] {
		s.allowed.set(sub, on)
	}
}
