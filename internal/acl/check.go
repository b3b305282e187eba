package acl

import (
	"strings"

	"cellserver/internal/match"
)

// Request describes a call that is to be checked. Its slices are borrowed.
type Request struct {
	Command       int
	AlwaysAllowed bool     // any user may make the call, whatever the rules: AUTH and the like
	Words         [][]byte // the command's name and its arguments
	Keys          [][]byte
	// Access to each key; the last element is for all keys that follow, and 0 is for calls such as
	// EXISTS that do not access the value.
	Access   []Access
	Channels [][]byte
	Literal  bool // the channels are patterns, which a rule must contain literally
	// Steps is the budget for matching patterns, in steps of a few nanoseconds. Check reduces it.
	Steps int
}

// Verdict is the result of a check. If selectors refuse a call for different reasons, the largest
// Verdict is reported.
type Verdict uint8

const (
	Allowed Verdict = iota
	DeniedCommand
	DeniedKey
	DeniedPassword // wrong password in AUTH; used in the log only, not returned by Check
	DeniedChannel
	DeniedCertificate // a certificate that names no user; in the log only too
)

// Check reports whether the user may make a call. If a key or a channel is denied, at is its index.
// A call whose check needs more steps than Request.Steps is denied.
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
	if !r.AlwaysAllowed && !s.allowed.has(r.Command) && !s.allowsFirstArg(r) {
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

func (s *selector) allowsFirstArg(r *Request) bool {
	if len(r.Words) < 2 {
		return false
	}
	for _, word := range s.firstArgs[r.Command] {
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
	*steps-- // so that a pattern that fails at its first byte costs a step too
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

// MaySubscribe reports whether the user may stay subscribed to a channel, or to a pattern. In
// contrast to Check, it is enough that any one selector allows it, as in Redis.
func (u *User) MaySubscribe(channel []byte, pattern bool) bool {
	steps := maxSteps
	for _, s := range u.selectors {
		if s.allChannels || allows(s.channels, channel, pattern, &steps) {
			return true
		}
	}
	return false
}

// maxSteps bounds the check of one subscription to about a quarter of a millisecond.
const maxSteps = 1 << 16

// AllowsChannelsOf reports whether this user may use every channel that another may. If so,
// subscriptions need no check when this user replaces the other.
func (u *User) AllowsChannelsOf(before *User) bool {
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
