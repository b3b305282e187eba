package envoy

import (
	"fmt"
	"io"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"
)

// Unit is the length of a window, by its number in Envoy's messages.
type Unit uint8

// The units. A month has 30 days and a year 365. UnknownUnit is the unit of a limit that is unlimited.
const (
	UnknownUnit Unit = iota
	Second
	Minute
	Hour
	Day
	Month
	Year
	Week
)

type unitName struct {
	name    string
	seconds int64
	period  string
}

// units describes each unit: its name in files, and the period of its windows in seconds and as a word of CL.QUOTA.
var units = [...]unitName{
	UnknownUnit: {name: "unknown"},
	Second:      {"second", 1, "1s"},
	Minute:      {"minute", 60, "60s"},
	Hour:        {"hour", 3600, "3600s"},
	Day:         {"day", 86_400, "86400s"},
	Month:       {"month", 30 * 86_400, "2592000s"},
	Year:        {"year", 365 * 86_400, "31536000s"},
	Week:        {"week", 7 * 86_400, "604800s"},
}

// IsKnown reports whether windows can have the unit. Requests may have any number.
func (u Unit) IsKnown() bool { return UnknownUnit < u && int(u) < len(units) }

// String returns the unit as files write it.
func (u Unit) String() string { return units[u].name }

// UnitNamed returns the unit with a name; UnknownUnit if there is none.
func UnitNamed(name string) Unit {
	return unitWhere(func(u *unitName) bool { return u.name == name })
}

// UnitOf returns the unit with a length in seconds; UnknownUnit if there is none.
func UnitOf(seconds int64) Unit {
	return unitWhere(func(u *unitName) bool { return u.seconds == seconds })
}

func unitWhere(is func(u *unitName) bool) Unit {
	for i := range units {
		if is(&units[i]) {
			return Unit(i)
		}
	}
	return UnknownUnit
}

// Seconds returns the length of the unit.
func (u Unit) Seconds() int64 { return units[u].seconds }

// Period returns the length of the unit as a word of CL.QUOTA.
func (u Unit) Period() string { return units[u].period }

// Limit is a limit of a configuration, or a limit in a request. It may stand for the limits of a policy.
type Limit struct {
	Requests  uint32 // in a window
	Unit      Unit
	Unlimited bool
	Shadow    bool // counts, and is never over
	Quota     bool // the request is refused only if all limits in quota mode are over
	Name      string
	Replaces  []string         // names of limits that do not count if this one does
	Metadata  *structpb.Struct // nil if there is none
	Policy    string           // the policy whose limits count, in place of the fields above; empty for none
	subject   subject          // of the policy
	at        place            // of the policy
	Path      string           // its place, such as domain.key_value.key
	Decisions *Decisions       // about the limit; nil for a limit in a request
	detailed  bool             // decisions are counted by the values of requests
}

// Config is an immutable configuration: the limits of domains.
type Config struct {
	domains   map[string]*level
	limits    []*Limit       // in the order of their paths
	perDomain map[string]int // the number of limits
	counts    []*Decisions   // in the order of their paths
	byValue   bool           // a descriptor has value_to_metric
	values    *values
}

// Domains returns the number of domains.
func (c *Config) Domains() int { return len(c.domains) }

// Limits returns the number of limits of all domains.
func (c *Config) Limits() int { return len(c.limits) }

// Dump writes a line for each limit, as the original does at /rlconfig.
func (c *Config) Dump(w io.Writer) {
	for _, l := range c.limits {
		if l.Policy != "" {
			fmt.Fprintf(w, "%s: policy=%s, subject=%s, shadow_mode: %t, quota_mode: %t\n", l.Path, l.Policy, l.subject,
				l.Shadow, l.Quota)
			continue
		}
		fmt.Fprintf(w, "%s: unit=%s requests_per_unit=%d, shadow_mode: %t, quota_mode: %t\n", l.Path,
			strings.ToUpper(l.Unit.String()), l.Requests, l.Shadow, l.Quota)
	}
}

// HasDomain reports whether a domain is configured.
func (c *Config) HasDomain(name string) bool { return c.domains[name] != nil }

// level is a domain or a descriptor: its limit, and the descriptors below it, by the texts key_value.
type level struct {
	below    map[string]*level
	patterns patterns
	limit    *Limit // nil if there is none
	text     string // of a descriptor: key_value
	byValue  bool   // value_to_metric
	share    string // with share_threshold: the pattern under which all values count together; else empty
}

// Entry is an entry of a descriptor of a request.
type Entry interface {
	GetKey() string
	GetValue() string
}

// Match is what a descriptor of a request matches.
type Match struct {
	Limit *Limit // nil if no limit counts
	// Shared has, for each entry, the text under which its value counts together with others, or an empty text if the
	// value counts by itself. It is nil if all values count by themselves.
	Shared []string
	// Decisions about the limit are counted here.
	Decisions *Decisions
	Metadata  *structpb.Struct // of the limit; nil if there is none, or where the original returns none
}

// Find returns what a descriptor of a domain matches.
func Find[E Entry](c *Config, domain string, entries []E) (m Match) {
	at := c.domains[domain]
	if at == nil || len(entries) == 0 {
		return Match{}
	}
	var few [256]byte
	text := few[:0]
	for i, e := range entries {
		text = append(append(append(text[:0], e.GetKey()...), '_'), e.GetValue()...)
		next, byPattern := at.find(text, len(e.GetKey()))
		if next == nil {
			return Match{}
		}
		if byPattern && next.share != "" {
			if m.Shared == nil {
				m.Shared = make([]string, len(entries))
			}
			m.Shared[i] = withoutKey(next.share, e.GetKey())
		}
		at = next
	}
	if m.Limit = at.limit; m.Limit == nil {
		return Match{}
	}
	m.Decisions = countsOf(c, domain, entries, &m)
	if m.Limit.Metadata != nil && keepsMetadata(c, domain, entries, &m, at) {
		m.Metadata = m.Limit.Metadata
	}
	return m
}

// seal makes the indexes of the patterns of l, and of all levels below it.
func (l *level) seal() {
	l.patterns.seal()
	for _, below := range l.below {
		below.seal()
	}
}

// find returns the level below l for a text key_value. key is the length of its key in bytes.
func (l *level) find(text []byte, key int) (next *level, byPattern bool) {
	if next = l.below[string(text)]; next != nil {
		return next, false
	}
	if next = l.patterns.find(text); next != nil {
		return next, true
	}
	return l.below[string(text[:key])], false
}

// withoutKey returns the part of a pattern that is about the value, if the pattern begins with the whole key.
func withoutKey(pattern, key string) string {
	if len(pattern) > len(key) && pattern[:len(key)] == key && pattern[len(key)] == '_' {
		return pattern[len(key)+1:]
	}
	return pattern
}
