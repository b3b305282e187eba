// Package limit lists the kinds of limiters, each once, and defines their rules. The algorithms are in packages gcra,
// window and lease.
package limit

import (
	"cmp"
	"strings"
)

// Kind is the kind of what a key holds: the state of a limiter, or a value.
type Kind uint8

const (
	None       Kind = iota // no key
	Throttle               // state of CL.THROTTLE: its TAT
	Fixed                  // state of a fixed window counter
	Sliding                // state of a sliding window counter
	SlidingLog             // entries of a sliding window log
	Quota                  // count of a calendar quota; insert new kinds that take quantities after it
	Lease                  // leases of permits
	Standing               // exemption, ban and refusals of a policy's subject
	Integer                // a value that is an integer
	Bytes                  // any other value

	Kinds = iota // the number of kinds, with None
)

// kinds describes each kind.
var kinds = [Kinds]struct {
	name    string // as CL.INSPECT shows it
	command string // the command that makes keys of the kind, if it is not the name
	letter  byte   // in forms (package form); 0 for values
	plain   *Plain // nil if the kind is not plain
}{
	None:       {name: "none"},
	Throttle:   {name: "cl.throttle", letter: 't'},
	Fixed:      {name: "cl.fixed", letter: 'f', plain: &fixed},
	Sliding:    {name: "cl.sliding", letter: 's', plain: &sliding},
	SlidingLog: {name: "cl.slidinglog", letter: 'l'},
	Quota:      {name: "cl.quota", letter: 'q'},
	Lease:      {name: "cl.lease", letter: 'c', command: "cl.acquire"},
	Standing:   {name: "cl.standing", letter: 'b', command: "cl.exempt"},
	Integer:    {name: "integer"},
	Bytes:      {name: "bytes"},
}

// String returns the name of the kind as CL.INSPECT shows it.
func (k Kind) String() string { return kinds[k].name }

// Command returns the name of the command that makes keys of the kind; empty for values.
func (k Kind) Command() string {
	if k == None || k.IsValue() {
		return ""
	}
	return cmp.Or(kinds[k].command, kinds[k].name)
}

// Letter returns the letter of a kind in forms; 0 for values.
func (k Kind) Letter() byte { return kinds[k].letter }

// OfLetter returns the kind with a letter. ok is false if there is none.
func OfLetter(letter byte) (k Kind, ok bool) {
	for k = Throttle; k <= Standing; k++ {
		if kinds[k].letter == letter {
			return k, true
		}
	}
	return None, false
}

// IsValue reports whether the kind is a value, as SET writes it.
func (k Kind) IsValue() bool { return k == Integer || k == Bytes }

// Word returns the name of a kind in policies, such as throttle.
func (k Kind) Word() string { return strings.TrimPrefix(kinds[k].name, "cl.") }

// OfPolicies are the kinds of limits that policies may have: the kinds that take quantities.
var OfPolicies = func() (all []Kind) {
	for k := Throttle; k < Lease; k++ {
		all = append(all, k)
	}
	return all
}()

// Ends reports whether the whole limit of a kind comes back at one instant: the end of a window.
func (k Kind) Ends() bool { return k == Fixed || k == Quota }

// TakesAhead reports whether tokens of a kind may be taken ahead: see Rule.MayTakeAhead. Package ahead has a case for
// each such kind.
func (k Kind) TakesAhead() bool { return k == Throttle || k.Ends() }

// List joins the names of kinds as prose does, such as "a, b or c" if last is "or".
func List(kinds []Kind, name func(Kind) string, last string) string {
	text := ""
	for i, k := range kinds {
		switch {
		case i == 0:
		case i == len(kinds)-1 && last != "":
			text += " " + last + " "
		default:
			text += ", "
		}
		text += name(k)
	}
	return text
}
