package acl

import (
	"encoding/hex"
	"strings"
)

// Description is what ACL GETUSER shows of a user: flags, and rules that make the same user.
type Description struct {
	Flags     []string
	Passwords []string // SHA-256 in hexadecimal
	Permissions
	Selectors []Permissions
}

// Permissions are the rules of one selector.
type Permissions struct{ Commands, Keys, Channels string }

// Describe returns the description of a user.
func (u *User) Describe() (d Description) {
	for i, s := range u.selectors {
		p := Permissions{s.describeCommands(u.commands), strings.Join(s.describeKeys(), " "),
			strings.Join(s.describeChannels(), " ")}
		if i == 0 {
			d.Permissions = p
		} else {
			d.Selectors = append(d.Selectors, p)
		}
	}
	d.Flags = append(d.Flags, map[bool]string{true: "on", false: "off"}[u.enabled])
	if u.noPass {
		d.Flags = append(d.Flags, "nopass")
	}
	if u.payload != "" {
		d.Flags = append(d.Flags, u.payload)
	}
	for _, hash := range u.passwords {
		d.Passwords = append(d.Passwords, hex.EncodeToString(hash[:]))
	}
	return d
}

// String returns the user as a line of an ACL file.
func (u *User) String() string {
	d := u.Describe()
	words := append([]string{"user", u.name}, d.Flags...)
	for _, hash := range d.Passwords {
		words = append(words, "#"+hash)
	}
	for i, s := range u.selectors {
		rules := s.describeKeys()
		if !s.allChannels {
			rules = append(rules, "resetchannels")
		}
		rules = append(rules, s.describeChannels()...)
		if i == 0 {
			words = append(append(words, rules...), d.Commands)
			continue
		}
		words = append(words, "("+strings.Join(append(rules, d.Selectors[i-1].Commands), " ")+")")
	}
	return strings.Join(words, " ")
}

func (s *selector) describeKeys() (rules []string) {
	if s.allKeys {
		return []string{"~*"}
	}
	for _, k := range s.keys {
		rules = append(rules, map[Access]string{Read: "%R~", Write: "%W~", Read | Write: "~"}[k.access]+k.pattern)
	}
	return rules
}

func (s *selector) describeChannels() (rules []string) {
	if s.allChannels {
		return []string{"&*"}
	}
	for _, pattern := range s.channels {
		rules = append(rules, "&"+pattern)
	}
	return rules
}

// describeCommands finds a short list of rules that result in the same set of commands, with the
// method of Redis: all commands or none, then the categories that fit best one after the other,
// then single commands for the differences. Each rule found is applied to described and to
// remaining, which shows what is still missing.
func (s *selector) describeCommands(c *Commands) string {
	first := "-@all"
	if s.futureCommands {
		first = "+@all"
	}
	rules, described, remaining := []string{first}, c.newSelector(false), s.clone()
	described.allowAll(c, s.futureCommands)
	for applied := make([]bool, len(c.categories)); ; {
		best := bestCategory(c, remaining, applied, s.futureCommands)
		if best < 0 {
			break
		}
		applied[best] = true
		sign := "+@"
		if s.futureCommands {
			sign = "-@"
		}
		rules = append(rules, sign+c.categories[best].name)
		for _, n := range c.categories[best].members {
			described.allow(c, n, !s.futureCommands)
			remaining.allow(c, n, s.futureCommands)
		}
	}
	rules = append(rules, s.describeAbsent(len(rules) > 1)...)
	for n := range c.list {
		rules = append(rules, s.describeCommand(c, n, described)...)
	}
	return strings.Join(rules, " ")
}

// describeAbsent returns the rules about what only Redis has. A rule that repeats the first rule of all is left out,
// unless there is a category before it, which may have the command in Redis.
func (s *selector) describeAbsent(hasCategories bool) (rules []string) {
	for _, rule := range s.absent {
		repeats := (rule[0] == '+') == s.futureCommands
		if !repeats || hasCategories {
			rules = append(rules, rule)
		}
		hasCategories = hasCategories || rule[1] == '@' && !repeats
	}
	return rules
}

// bestCategory returns the category that describes the remaining commands best, or -1 if none
// helps. A category qualifies if more than half of its commands remain. The one with the fewest
// other commands wins.
func bestCategory(c *Commands, remaining *selector, applied []bool, futureCommands bool) (best int) {
	best = -1
	fewest, most := 0, 0
	for i, cat := range c.categories {
		if applied[i] {
			continue
		}
		same := remaining.allowed.count(cat.members)
		others := len(cat.members) - same
		if futureCommands {
			same, others = others, same
		}
		if same > others && (best < 0 || others < fewest || others == fewest && same > most) {
			best, fewest, most = i, others, same
		}
	}
	return best
}

// describeCommand returns the rules that one command needs in addition to those already found.
func (s *selector) describeCommand(c *Commands, n int, described *selector) (rules []string) {
	name, allowed := c.list[n].Name, s.allowed.has(n)
	switch {
	case allowed == described.allowed.has(n):
	case allowed:
		rules = append(rules, "+"+name)
	default:
		rules = append(rules, "-"+name)
	}
	if len(rules) > 0 {
		described.allow(c, n, allowed)
	}
	if !allowed {
		for _, word := range s.firstArgs[n] {
			rules = append(rules, "+"+name+"|"+word)
		}
	}
	return rules
}
