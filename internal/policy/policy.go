// Package policy has the limits that live in the server: policies, which an operator writes in YAML
// files, and which clients name instead of numbers. It reads nothing but bytes, is told the time, and
// knows neither commands nor the store.
//
//	parse.go     files to a Set, refused as a whole with file, line and reason; the parts of a policy
//	             are read in parse_limits.go and http.go, with the types of YAML in yaml.go
//	policy.go    what a Set consists of
//	match.go     the limits of a subject: overrides by pattern and by network
//	plan.go      plans: other limits for subjects that were given one
//	grant.go     grants: more of a limit for a subject
//	key.go       the names of the keys that hold the state of a policy
//	judge.go     what a call is answered, given its subject's standing and the decisions of its limits
//	notify.go    thresholds: which steps are reported; event.go has the reports
//	diff.go      what changes between two Sets, as lines for the log
//	describe.go  a policy as lines for people
//	client.go    the subject of an HTTP request
//	fields.go    the RateLimit fields of HTTP
//	outcome.go   what CL.TAKE with VERBOSE replies, for callers in this process
//
// # Order of judgement
//
// A subject that is exempt passes. A subject that is banned is refused. Otherwise, the first override, in
// the order of the file, that matches the subject decides; without one, the subject's plan; without a plan,
// the limits of the policy. Grants add to these limits. A call takes from all limits or from none. It is
// answered with the decision of one limit: the refusal with the longest time to wait, or, if no limit
// refused it, the limit with the least part remaining.
package policy

import (
	"net/netip"
	"slices"
	"sync/atomic"

	"cellserver/internal/limit"
	"cellserver/internal/standing"
	"cellserver/internal/stats"
)

// The bounds of a Set. They keep the time to read it, to find a policy's override and to compare it with
// another Set short.
const (
	MaxBytes      = 4 << 20 // of all files together
	MaxPolicies   = 10_000
	MaxOverrides  = 100  // of a policy
	MaxLimits     = 16   // of a policy, or of an override
	MaxNetworks   = 1000 // of an override
	MaxNameBytes  = 64   // of a policy or a limit
	maxPattern    = 256  // bytes of a pattern
	maxAfter      = 1_000_000_000
	maxBanFactor  = 1_000_000
	defaultPrefix = 64 // bits of an IPv6 address by which HTTP clients are told apart
)

// Set is an immutable set of policies.
type Set struct {
	policies map[string]*Policy
	names    []string     // in order
	slots    [256]*Policy // by slotOf their names, as far as they do not share one
}

// Policy returns the policy with a name, or nil. Most policies are found at their slot, in a fifth of the time
// that the map takes.
func (s *Set) Policy(name []byte) *Policy {
	if p := s.slots[slotOf(name)]; p != nil && p.Name == string(name) {
		return p
	}
	return s.policies[string(name)]
}

// slotOf returns an index of Set.slots: a hash of a name's length and its first and last byte.
func slotOf[T string | []byte](name T) uint8 {
	if len(name) == 0 {
		return 0
	}
	return uint8(len(name))*13 ^ name[0]*5 ^ name[len(name)-1]
}

// Len returns the number of policies.
func (s *Set) Len() int { return len(s.names) }

// Names returns the names of all policies, in order.
func (s *Set) Names() []string { return slices.Clone(s.names) }

// Policy is a set of limits for subjects, such as users or addresses. All of a policy's fields are
// read-only, except Counts.
type Policy struct {
	Name      string
	Limits    []Limit // one at least
	Overrides []Override
	Plans     []Plan // in the order of the file
	// DefaultPlan is the plan of subjects without a plan of their own. Its limits are Limits. Empty if there is none.
	DefaultPlan string
	Ban         *Ban  // nil if refusals never lead to a ban
	Shadow      bool  // decides, takes and counts, but never refuses
	Ahead       int64 // nanoseconds for which tokens may be taken ahead: see store.LimitRequest
	HTTP        HTTP
	Notify      Notify
	// Counts is where the family of commands counts decisions, for metrics; nil before the first.
	Counts atomic.Pointer[stats.Decisions]

	// The most steps of matching a subject with the overrides: fixed ones, and some for each of its bytes.
	fixedSteps, byteSteps int
	mostLimits            int
	simple                bool // see IsSimple

	lease string // of Ahead, as in the file
	cidr  bool   // an override has networks, so subjects that are addresses are written in canonical form
	head  string // the part of its keys before the subject: the name and ":{"
	at    position
}

// Override is another treatment of some subjects: subjects that match a pattern, or addresses in
// some networks. Its limits have the same keys as the policy's limits with the same labels, so a subject
// that gets an override, or another one, keeps these counts.
type Override struct {
	Pattern  string         // a glob-style pattern on the whole subject; empty if there are networks
	Networks []netip.Prefix // nil if there is a pattern
	Effect   Effect
	Limits   []Limit // if the Effect is Limited

	of string // its subjects; no two overrides of a policy have the same
}

// Effect is how a policy treats a subject.
type Effect uint8

const (
	Limited   Effect = iota // by limits
	Unlimited               // every call is allowed
	Blocked                 // every call is refused
)

// String returns the effect as files write it.
func (e Effect) String() string { return effectNames[e] }

var effectNames = [...]string{"limits", "unlimited", "blocked"}

// Limit is one limit of a policy.
type Limit struct {
	Name string // empty if it has none
	limit.Rule

	label string  // the last part of its keys: the name and a dot, if there is a name, and the kind
	tail  string  // the part of its keys after the subject: "}:" and the label
	text  string  // its numbers, as in the file
	rate  rate    // of a Throttle
	lines []int64 // see Nears; nil if the policy has no notify
}

// String returns the limit as files write it, with its label.
func (l *Limit) String() string { return l.label + " " + l.text }

// Label returns the name of the limit in keys and answers: [name.]kind. The label of a quota has its unit
// and zone too, as in quota-day@Europe/Berlin, so that another unit is another key.
func (l *Limit) Label() string { return l.label }

// Ban is the rule by which refusals lead to a ban.
type Ban struct {
	standing.Rule
	text string // as in the file
}
