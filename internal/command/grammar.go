package command

import (
	"fmt"
	"math"
	"strings"

	"cellserver/internal/quota"
	"cellserver/internal/resp"
)

// Arg is one argument in a row's grammar. Arguments that are not led by a token stand first and in
// order; after them come options, led by their tokens, in any order and case, each at most once.
type Arg struct {
	Name     string
	kind     kind
	Tokens   []string // of an option: the word, or words to choose from, that lead or make it
	optional bool
	longest  int // bytes of a word; 0: no bound of its own
	many     bool
	most     int                              // how often one that repeats may stand, if it is no key
	pair     string                           // of a key that repeats: what the word behind each is
	again    bool                             // an option may be given again, and the last one counts
	valued   string                           // of a choice: what the word behind the token is; empty for none
	lo, hi   int64                            // of an integer
	or       int64                            // what an integer is when it is left out
	parse    func(word []byte) (int64, error) // of an integer that is written in a way of its own
}

type kind uint8

const (
	keyArg    kind = iota // a key
	wordArg               // any word
	intArg                // an integer
	choiceArg             // one of several tokens
	flagArg               // a token, there or not
)

const (
	MinInt = -1 << 63
	MaxInt = 1<<63 - 1
)

// Key is a key of any bytes, as long as the server's bound allows.
func Key(name string) Arg { return Arg{Name: name, kind: keyArg} }

// Word is a word of any bytes.
func Word(name string) Arg { return Arg{Name: name, kind: wordArg} }

// Int is a base-10 integer of 64 bits. In a CL command it may have a sign and leading zeros, as
// redis-cell takes it; in the others it is what Redis takes.
func Int(name string) Arg { return Arg{Name: name, kind: intArg, lo: MinInt, hi: MaxInt} }

// OneOf is an option that chooses between tokens.
func OneOf(name string, tokens ...string) Arg {
	return Arg{Name: name, kind: choiceArg, Tokens: tokens, optional: true}
}

// WithEach has a word follow the token of a choice, whichever it is.
func (a Arg) WithEach(word string) Arg { a.valued = word; return a }

// Flag is an option that is a token alone.
func Flag(token string) Arg {
	return Arg{Name: strings.ToLower(token), kind: flagArg, Tokens: []string{token}, optional: true}
}

// Min and Max bound an integer.
func (a Arg) Min(lo int64) Arg { a.lo = lo; return a }
func (a Arg) Max(hi int64) Arg { a.hi = hi; return a }

// Or makes an integer optional and says what it then is.
func (a Arg) Or(n int64) Arg { a.or, a.optional = n, true; return a }

// By reads an integer that is written, or refused, in a way of its own.
func (a Arg) By(parse func(word []byte) (int64, error)) Arg { a.parse = parse; return a }

// Longest bounds a word, in bytes.
func (a Arg) Longest(bytes int) Arg { a.longest = bytes; return a }

// Optional lets a word be left out.
func (a Arg) Optional() Arg { a.optional = true; return a }

// Many lets the last argument repeat. If it is not optional, it stands once at least.
func (a Arg) Many() Arg { a.many = true; return a }

// UpTo says how often an argument that repeats, and is no key, may stand: fewer or more than
// others.
func (a Arg) UpTo(most int) Arg { a.most = most; return a }

// With makes pairs of a key that repeats and a word behind it.
func (a Arg) With(word string) Arg { a.many, a.pair = true, word; return a }

// After makes an argument an option, led by a token.
func (a Arg) After(token string) Arg { a.Tokens, a.optional = []string{token}, true; return a }

// Again lets an option be given several times, of which the last counts, as in some commands of
// Redis's.
func (a Arg) Again() Arg { a.again = true; return a }

// grammar is what follows from a row's arguments, worked out once.
type grammar struct {
	args       []Arg
	slots      []slot
	positional int  // how many come first, led by no token
	min, max   int  // words of a call, the name included; max 0: no bound
	decimals   bool // integers as redis-cell takes them
	options    bool // there are some, so a word too many is a syntax error
}

// slot is what bind reads of an argument: an Arg is three cache lines, and of most of them this is
// all that counts.
type slot struct {
	lo, hi, or int64
	how        how
	skips      bool // it is left out if an option stands in its place
}

type how uint8

const (
	aside  how = iota // see take
	byInt             // an integer, as most are written
	byMany            // all words that are left
)

func newSlot(a *Arg, options bool) slot {
	s := slot{lo: a.lo, hi: a.hi, or: a.or, skips: a.optional && options}
	switch {
	case a.many:
		s.how = byMany
	case a.kind == intArg && a.parse == nil:
		s.how = byInt
	}
	return s
}

// newGrammar works it out. name is the row's own words: a subcommand has two.
func newGrammar(row *Command) grammar {
	g := grammar{args: row.Args, min: strings.Count(row.Name, "|") + 1, decimals: row.Traits&DecimalWords != 0}
	g.max = g.min
	for _, a := range row.Args {
		if a.Tokens == nil {
			g.positional++
			g.max++
		} else {
			g.options = true
		}
		if !a.optional {
			g.min++
		}
		if a.pair != "" {
			g.min++
		}
		if a.many && a.kind == keyArg {
			g.max = 0
		} else if a.most > 0 {
			g.max += a.most - 1
		} else if a.many {
			g.max = manyWords
		}
	}
	if row.AnyMore || g.options {
		g.max = 0
	}
	g.min = max(g.min, row.Min)
	for i := range g.args {
		g.slots = append(g.slots, newSlot(&g.args[i], g.options))
	}
	return g
}

// manyWords is how many words a call may have whose last argument repeats and is no key, such as
// COMMAND DOCS: each may make a piece of the reply, and together they must not make a reply of any
// size.
const manyWords = 128

// arity is what COMMAND INFO says: the number of words, negative if that is the least.
func (g *grammar) arity() int {
	if g.max == g.min {
		return g.min
	}
	return -g.min
}

// Fits says whether a call may have this many words.
func (g *grammar) Fits(words int) bool { return words >= g.min && (g.max == 0 || words <= g.max) }

// bind gives each argument of the row its word of the call, from word number at on. It changes
// nothing but the call; its error is the refusal.
func (c *Call) bind(at int) error {
	g, words := &c.Row.Grammar, c.Words
	for i := range g.slots[:g.positional] {
		s, b := &g.slots[i], &c.Bound[i]
		if at >= len(words) || s.skips && g.isOption(words[at]) {
			*b = bound{N: s.or}
			continue
		}
		b.At = at
		if s.how == byInt { // most of what a hot call has, so it is read here
			if n, ok := resp.ParseInt(words[at]); ok && s.lo <= n && n <= s.hi {
				b.N = n
				at++
				continue
			}
		} else if s.how == byMany {
			return c.checkKeys(&g.args[i], words[at:])
		}
		if err := c.Take(&g.args[i], b, words[at]); err != nil {
			return err
		}
		at++
	}
	for i := g.positional; i < len(g.slots); i++ {
		c.Bound[i] = bound{N: g.slots[i].or}
	}
	if at < len(words) && g.options {
		return c.bindOptions(at)
	}
	return nil
}

// Take reads the word that an argument is bound to.
func (c *Call) Take(a *Arg, b *bound, word []byte) (err error) {
	switch a.kind {
	case keyArg:
		return c.CheckKey(word)
	case wordArg:
		if a.longest > 0 && len(word) > a.longest {
			return Refusal(fmt.Sprintf("ERR %s is longer than %d bytes", a.Name, a.longest))
		}
	case intArg:
		b.N, err = a.Integer(word, c.Row.Grammar.decimals)
	}
	return err
}

// Integer reads an integer and holds it to its bounds.
func (a *Arg) Integer(word []byte, decimals bool) (int64, error) {
	if a.parse != nil {
		return a.parse(word)
	}
	n, ok := ParseInteger(word, decimals)
	if !ok {
		return 0, ErrNotAnInteger
	}
	if n < a.lo || n > a.hi {
		return 0, &quota.ArgumentError{Name: a.Name, Lo: a.lo, Hi: a.hi}
	}
	return n, nil
}

// ParseInteger reads an integer as Redis does, or as redis-cell does too.
func ParseInteger(word []byte, decimals bool) (n int64, ok bool) {
	if n, ok = resp.ParseInt(word); !ok && decimals {
		n, ok = resp.ParseDecimal(word)
	}
	return n, ok
}

func (c *Call) checkKeys(a *Arg, words [][]byte) error {
	if a.kind != keyArg {
		return nil
	}
	if a.pair != "" && len(words)%2 != 0 {
		return ErrArity(c.Row)
	}
	for i := 0; i < len(words); i += a.step() {
		if err := c.CheckKey(words[i]); err != nil {
			return err
		}
	}
	return nil
}

// step is how far the words of an argument that repeats stand apart.
func (a *Arg) step() int {
	if a.pair != "" {
		return 2
	}
	return 1
}

func (c *Call) CheckKey(key []byte) error {
	if len(key) > c.Server.MaxKeySize {
		return errKeyTooLong(c.Server.MaxKeySize)
	}
	return nil
}

// bindOptions reads what follows the positional arguments.
func (c *Call) bindOptions(at int) error {
	g := &c.Row.Grammar
	for ; at < len(c.Words); at++ {
		i, token := g.option(c.Words[at])
		if i < 0 || c.Bound[i].At != 0 && !g.args[i].again {
			return ErrSyntax
		}
		a, b := &g.args[i], &c.Bound[i]
		b.At = at
		if a.kind == choiceArg || a.kind == flagArg {
			if b.N != 0 && b.N != int64(token)+1 {
				return ErrSyntax // another of the choice
			}
			if b.N = int64(token) + 1; a.valued == "" {
				continue
			}
		}
		if at++; at == len(c.Words) {
			return ErrSyntax
		}
		b.At = at
		if err := c.Take(a, b, c.Words[at]); err != nil {
			return err
		}
	}
	return nil
}

func (g *grammar) isOption(word []byte) bool {
	return len(word) > 0 && word[0] >= 'A' && g.leads(word) // else a number, at one look
}

func (g *grammar) leads(word []byte) bool {
	i, _ := g.option(word)
	return i >= 0
}

// option finds the option that a word leads, and which of its tokens the word is; -1 if it leads
// none.
func (g *grammar) option(word []byte) (arg, token int) {
	for i := g.positional; i < len(g.args); i++ {
		for t, name := range g.args[i].Tokens {
			if FoldEqual(word, name) {
				return i, t
			}
		}
	}
	return -1, 0
}

// FoldEqual compares a word with an upper-case name, whatever the word's case.
func FoldEqual(word []byte, upper string) bool {
	if len(word) != len(upper) {
		return false
	}
	for i, b := range word {
		if 'a' <= b && b <= 'z' {
			b -= 'a' - 'A'
		}
		if b != upper[i] {
			return false
		}
	}
	return true
}

// ParseIndex reads an int of 32 bits, with Redis's words for a longer one.
func ParseIndex(word []byte) (int64, error) {
	n, ok := resp.ParseInt(word)
	switch {
	case !ok:
		return 0, ErrNotAnInteger
	case n < math.MinInt32 || n > math.MaxInt32:
		return 0, Refusal("ERR value is out of range, value must between -2147483648 and 2147483647")
	}
	return n, nil
}

// Pattern is a glob-style pattern. Its length is bounded, because the time to match grows with it
// and with the key's.
func Pattern(name string) Arg { return Word(name).Longest(1024) }
