package acl

import (
	"encoding/hex"
	"strings"
)

// Description is what ACL GETUSER tells of a user: in rules that would make the same one.
type Description struct {
	Flags     []string
	Passwords []string // hashes, in hexadecimal
	Permissions
	Selectors []Permissions
}

// Permissions are a selector's.
type Permissions struct{ Commands, Keys, Channels string }

// Describe describes the user.
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

// String is the user as a line of an ACL file.
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

// describeCommands finds few rules that make the same set of commands, as Redis does: all or none,
// then the categories that fit best one after the other, then what differs command by command. The
// rules found are applied on the way, to know what is left.
func (s *selector) describeCommands(c *Commands) string {
	first := "-@all"
	if s.future {
		first = "+@all"
	}
	rules, made, rest := []string{first}, c.newSelector(false), s.clone()
	made.allowAll(c, s.future)
	for applied := make([]bool, len(c.categories)); ; {
		best := bestCategory(c, rest, applied, s.future)
		if best < 0 {
			break
		}
		applied[best] = true
		sign := "+@"
		if s.future {
			sign = "-@"
		}
		rules = append(rules, sign+c.categories[best].name)
		for _, n := range c.categories[best].members {
			made.allow(c, n, !s.future)
			rest.allow(c, n, s.future)
		}
	}
	for n := range c.list {
		rules = append(rules, s.describeCommand(c, n, made)...)
	}
	return strings.Join(rules, " ")
}

// bestCategory is the category that most of what is left to say can be said with, -1 if none helps:
// one with more commands that are to be told than others, and of those the one with the fewest
// others.
func bestCategory(c *Commands, rest *selector, applied []bool, future bool) (best int) {
	best = -1
	fewest, most := 0, 0
	for i, cat := range c.categories {
		if applied[i] {
			continue
		}
		same := rest.allowed.count(cat.members)
		others := len(cat.members) - same
		if future {
			same, others = others, same
		}
		if same > others && (best < 0 || others < fewest || others == fewest && same > most) {
			best, fewest, most = i, others, same
		}
	}
	return best
}

// describeCommand tells of a command what the rules that are told already do not.
func (s *selector) describeCommand(c *Commands, n int, made *selector) (rules []string) {
	name, allowed := c.list[n].Name, s.allowed.has(n)
	switch {
	case allowed == made.allowed.has(n):
	case allowed:
		rules = append(rules, "+"+name)
	default:
		rules = append(rules, "-"+name)
	}
	if len(rules) > 0 {
		made.allow(c, n, allowed)
	}
	if !allowed {
		for _, word := range s.firstWords[n] {
			rules = append(rules, "+"+name+"|"+word)
		}
	}
	return rules
}
