package acl

import (
	"strings"

	"cellserver/internal/match"
)

// Request is a call about which somebody asks whether it may be made. What it holds is borrowed.
type Request struct {
	Command  int
	Free     bool     // everybody may say it, whatever its rules: AUTH and the like
	Words    [][]byte // the command's name first
	Keys     [][]byte
	Access   []Access // to each key; the last to all that follow. 0 is for those that look at no value, such as EXISTS
	Channels [][]byte
	Literal  bool // the channels are patterns: each has to be allowed as it is written
	Steps    int  // that the matching of patterns may take, each a few nanoseconds; then those that are left
}

// Verdict says whether a call may be made, and if not what forbids it. They are in the order of
// what is told where selectors forbid different things: the greatest.
type Verdict uint8

const (
	Allowed Verdict = iota
	DeniedCommand
	DeniedKey
	DeniedPassword // of AUTH, for the log: no call is denied so
	DeniedChannel
)

// Check says whether a call may be made; if a key or a channel forbids it, at says which of them. A
// call that takes more steps to decide than it has is not allowed.
func (u *User) Check(r *Request) (denied Verdict, at int) {
	denied = DeniedCommand
	for _, s := range u.selectors {
		v, n := s.check(r)
		if v == Allowed {
			return Allowed, 0
		}
		if v > denied || v == denied && n > at {
			denied, at = v, n
		}
	}
	return denied, at
}

func (s *selector) check(r *Request) (denied Verdict, at int) {
	if !r.Free && !s.allowed.has(r.Command) && !s.allowsFirstWord(r) {
		return DeniedCommand, 0
	}
	if !s.allKeys {
		for i, key := range r.Keys {
			if !s.allowsKey(r, key, r.Access[min(i, len(r.Access)-1)]) {
				return DeniedKey, i
			}
		}
	}
	if !s.allChannels {
		for i, channel := range r.Channels {
			if !allows(s.channels, channel, r.Literal, &r.Steps) {
				return DeniedChannel, i
			}
		}
	}
	return Allowed, 0
}

func (s *selector) allowsFirstWord(r *Request) bool {
	if len(r.Words) < 2 {
		return false
	}
	for _, word := range s.firstWords[r.Command] {
		if strings.EqualFold(word, string(r.Words[1])) {
			return true
		}
	}
	return false
}

func (s *selector) allowsKey(r *Request, key []byte, access Access) bool {
	for i := range s.keys {
		k := &s.keys[i]
		if k.access&access == access && matches(k.bytes, key, &r.Steps) {
			return true
		}
	}
	return false
}

func matches(pattern, text []byte, steps *int) (ok bool) {
	*steps-- // a pattern that fails at its first byte takes time, too
	ok, *steps = match.GlobWithin(pattern, text, false, *steps)
	return ok
}

func allows(patterns []string, channel []byte, literal bool, steps *int) bool {
	for _, pattern := range patterns {
		if literal && pattern == string(channel) || !literal && matches([]byte(pattern), channel, steps) {
			return true
		}
	}
	return false
}

// MayHear says whether a subscription may stay that a client of the user's has: to a channel, or to
// a pattern of them. Unlike for Check it is enough that some selector allows the channel, as in
// Redis.
func (u *User) MayHear(channel []byte, pattern bool) bool {
	steps := maxSteps
	for _, s := range u.selectors {
		if s.allChannels || allows(s.channels, channel, pattern, &steps) {
			return true
		}
	}
	return false
}

// maxSteps bounds the look at one subscription: a quarter of a millisecond.
const maxSteps = 1 << 16

// HearsAll says whether the user may use every channel, or at least every one that another user
// may: then no subscription has to be looked at when the one becomes the other.
func (u *User) HearsAll(before *User) bool {
	all := make(map[string]bool)
	for _, s := range u.selectors {
		if s.allChannels {
			return true
		}
		for _, channel := range s.channels {
			all[channel] = true
		}
	}
	for _, s := range before.selectors {
		if s.allChannels {
			return false
		}
		for _, channel := range s.channels {
			if !all[channel] {
				return false
			}
		}
	}
	return true
}
