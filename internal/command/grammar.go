package command

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"cellserver/internal/quota"
	"cellserver/internal/resp"
)

// Arg is one argument in a row's grammar. Positional arguments come first, in order. Options follow
// in any order. Each begins with its token, in upper or lower case. An option may be given once,
// unless Again allows more.
type Arg struct {
	Name       string
	kind       argKind
	Tokens     []string // of an option: its first word, or the words to choose from
	optional   bool
	maxBytes   int                              // the length of a word; 0 for the protocol's bound alone
	repeats    bool                             // takes all remaining words
	maxCount   int                              // how often an argument that is no key may repeat; 0: see maxWords
	pairedWith string                           // of a key that repeats: the name of the word after each key
	repeatable bool                             // an option that may be given again; the last one counts
	operand    string                           // of a choice: the name of the word after the token, or ""
	lo, hi     int64                            // the bounds of an integer
	fallback   int64                            // the default of an integer
	parse      func(word []byte) (int64, error) // of an integer: see By; may be nil
	period     bool                             // an integer may also be a period with a unit
	tick       time.Duration                    // of an integer that may also be a time with a unit: see In
	extra      bool                             // an option that counts for Call.Extras
	second     *Arg                             // of an option that is a word: the integer after it; or nil
}

type argKind uint8

const (
	keyArg    argKind = iota // a key
	wordArg                  // any word
	intArg                   // an integer
	choiceArg                // one of several tokens
	flagArg                  // a token alone
)

// The bounds of the integers.
const (
	MinInt = -1 << 63
	MaxInt = 1<<63 - 1
)

// Key is a key: any bytes, up to the length that the server allows (max-key-size).
func Key(name string) Arg { return Arg{Name: name, kind: keyArg} }

// Word is a word of any bytes.
func Word(name string) Arg { return Arg{Name: name, kind: wordArg} }

// Int is a decimal integer of 64 bits, in Redis's notation. In a command with the trait NamesArguments it
// may have a sign and leading zeros, as in redis-cell.
func Int(name string) Arg { return Arg{Name: name, kind: intArg, lo: MinInt, hi: MaxInt} }

// Period is a period: an integer of seconds, of 1 or more, or a number with a unit (quota.ParsePeriod). Max is in
// seconds.
func Period(name string) Arg {
	a := Int(name).Min(1)
	a.period = true
	return a
}

// In makes an integer the number of units of a time, which may also be written with another unit
// (quota.ParsePeriod), and is rounded up then.
func (a Arg) In(unit time.Duration) Arg { a.tick = unit; return a }

// OneOf is an option with several tokens to choose from.
func OneOf(name string, tokens ...string) Arg {
	return Arg{Name: name, kind: choiceArg, Tokens: tokens, optional: true}
}

// WithEach adds a word after each token of a choice; name is the word's name.
func (a Arg) WithEach(name string) Arg { a.operand = name; return a }

// Flag is an option that is a token alone.
func Flag(token string) Arg {
	return Arg{Name: strings.ToLower(token), kind: flagArg, Tokens: []string{token}, optional: true}
}

// Min sets the smallest value of an integer.
func (a Arg) Min(lo int64) Arg { a.lo = lo; return a }

// Max sets the largest value of an integer.
func (a Arg) Max(hi int64) Arg { a.hi = hi; return a }

// Or makes an integer optional, with a default.
func (a Arg) Or(n int64) Arg { a.fallback, a.optional = n, true; return a }

// By parses an integer with a function, in place of Redis's notation and errors.
func (a Arg) By(parse func(word []byte) (int64, error)) Arg { a.parse = parse; return a }

// Longest bounds the length of a word, in bytes.
func (a Arg) Longest(bytes int) Arg { a.maxBytes = bytes; return a }

// Optional makes a word optional.
func (a Arg) Optional() Arg { a.optional = true; return a }

// Many lets the last positional argument repeat. If it is not optional, it is given at least once. It takes all
// remaining words, so a row that has options too finds where they begin, and calls Call.BindOptions.
func (a Arg) Many() Arg { a.repeats = true; return a }

// UpTo bounds how often an argument that repeats, and is no key, may be given. By default, maxWords
// bounds the whole call.
func (a Arg) UpTo(most int) Arg { a.maxCount = most; return a }

// With makes a key repeat, with a word after each key.
func (a Arg) With(word string) Arg { a.repeats, a.pairedWith = true, word; return a }

// After makes an argument an option that begins with a token.
func (a Arg) After(token string) Arg { a.Tokens, a.optional = []string{token}, true; return a }

// Then adds an integer after the word of an option: see Call.Option.
func (a Arg) Then(second Arg) Arg { a.second = &second; return a }

// Again lets an option be given several times; the last one counts, as in some of Redis's commands.
func (a Arg) Again() Arg { a.repeatable = true; return a }

// Extra marks an option that few calls have, and that has no default. Such options are the last ones.
// Rows on the hot path test Call.Extras in place of each of them.
func (a Arg) Extra() Arg { a.extra = true; return a }

// grammar holds the data that a table derives from a row's arguments.
type grammar struct {
	args       []Arg
	slots      []slot
	positional int  // the number of positional arguments
	token      int  // the index of IDArg; 0 if the row has none
	usual      int  // the number of arguments before the Arg.Extra ones, which come last
	min, max   int  // number of words of a call, including the name; max is 0 if there is no bound
	ours       bool // the row has the trait NamesArguments
	options    bool // the row has options, so a surplus word is a syntax error
}

// slot holds the fields of an Arg that bind reads in most calls, in half a cache line; an Arg spans
// three.
type slot struct {
	lo, hi, or int64
	binding    binding
	optional   bool // it may be missing before the options
}

type binding uint8

const (
	bindTake binding = iota // with Call.Take
	bindInt                 // an integer in Redis's notation
	bindRest                // the rest of the words, of an argument that repeats
)

func newSlot(a *Arg, options bool) slot {
	s := slot{lo: a.lo, hi: a.hi, or: a.fallback, optional: a.optional && options}
	switch {
	case a.repeats:
		s.binding = bindRest
	case a.kind == intArg && a.parse == nil:
		s.binding = bindInt
	}
	return s
}

// newGrammar returns the grammar of a row.
func newGrammar(row *Command) grammar {
	g := grammar{args: row.Args, min: strings.Count(row.Name, "|") + 1, ours: row.Traits&NamesArguments != 0}
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
		if a.pairedWith != "" {
			g.min++
		}
		if a.repeats && a.kind == keyArg {
			g.max = 0
		} else if a.maxCount > 0 {
			g.max += a.maxCount - 1
		} else if a.repeats {
			g.max = maxWords
		}
	}
	if row.AnyMore || g.options {
		g.max = 0
	}
	g.usual = len(row.Args)
	for g.usual > 0 && row.Args[g.usual-1].extra {
		g.usual--
	}
	g.token = max(slices.IndexFunc(g.args, func(a Arg) bool { return slices.Contains(a.Tokens, IDOption) }), 0)
	g.min = max(g.min, row.Min)
	for i := range g.args {
		g.slots = append(g.slots, newSlot(&g.args[i], g.options))
	}
	return g
}

// maxWords bounds the words of a call whose last argument repeats and is no key, such as the names
// of COMMAND DOCS. Each word may add to the reply, whose length must be bounded.
const maxWords = 128

// arity returns the arity that COMMAND INFO shows: the number of words, negative if there may be more.
func (g *grammar) arity() int {
	if g.max == g.min {
		return g.min
	}
	return -g.min
}

// Fits reports whether a call may have this many words.
func (g *grammar) Fits(words int) bool { return words >= g.min && (g.max == 0 || words <= g.max) }

// bind binds the words of the call, from index at on, to the arguments of the row. It changes only
// the call. If the words do not fit the grammar, it returns the error to reply with. Inlined into Run, it
// would run out of registers.
//
//go:noinline
func (c *Call) bind(at int) error {
	g, words := &c.Row.Grammar, c.Words
	for i := range g.slots[:g.positional] {
		s, b := &g.slots[i], &c.Bound[i]
		if at >= len(words) || s.optional && g.isOption(words[at]) {
			*b = bound{N: s.or}
			continue
		}
		b.At = at
		if s.binding == bindInt { // the most frequent kind on the hot path: most are read here, the others by Take
			if n, ok := resp.ParseDigits(words[at]); ok && s.lo <= n && n <= s.hi {
				b.N = n
				at++
				continue
			}
		} else if s.binding == bindRest {
			return c.checkKeys(&g.args[i], words[at:])
		}
		if err := c.Take(&g.args[i], b, words[at]); err != nil {
			return err
		}
		at++
	}
	c.Extras = 0
	for i := g.positional; i < g.usual; i++ {
		c.Bound[i] = bound{N: g.slots[i].or}
	}
	if at < len(words) && g.options {
		return c.bindOptions(at)
	}
	return nil
}

// Take checks the word that is bound to an argument. If the argument is an integer, Take sets its
// value.
func (c *Call) Take(a *Arg, b *bound, word []byte) (err error) {
	switch a.kind {
	case keyArg:
		return c.CheckKey(word)
	case wordArg:
		return a.CheckLength(word)
	case intArg:
		if c.Row.Grammar.ours {
			b.N, err = a.Number(word)
		} else {
			b.N, err = a.Integer(word, false)
		}
	}
	return err
}

// Number parses an integer of a command that Redis does not have. Its errors name the argument, and the
// option to which it belongs.
func (a *Arg) Number(word []byte) (int64, error) {
	n, err := a.Integer(word, true)
	if err == nil {
		return n, nil
	}
	label := ""
	if a.Tokens != nil {
		label = a.Tokens[0] + " "
	}
	if err == ErrNotAnInteger {
		return 0, &NumberError{Argument: label + a.Name, IsTime: a.period || a.tick > 0}
	}
	if outside, is := err.(*quota.ArgumentError); is {
		return 0, &quota.ArgumentError{Name: label + outside.Name, Lo: outside.Lo, Hi: outside.Hi}
	}
	return 0, err
}

// CheckLength refuses a word that is too long.
func (a *Arg) CheckLength(word []byte) error {
	if a.maxBytes > 0 && len(word) > a.maxBytes {
		return Refusal(fmt.Sprintf("ERR %s is longer than %d bytes", a.Name, a.maxBytes))
	}
	return nil
}

// Integer parses a word. It returns an error if the word is not an integer, or is out of bounds.
func (a *Arg) Integer(word []byte, decimals bool) (int64, error) {
	if a.parse != nil {
		return a.parse(word)
	}
	n, ok := ParseInteger(word, decimals)
	if !ok {
		return a.withUnit(word)
	}
	if n < a.lo || n > a.hi {
		return 0, &quota.ArgumentError{Name: a.Name, Lo: a.lo, Hi: a.hi}
	}
	return n, nil
}

// withUnit parses a word that is not an integer.
func (a *Arg) withUnit(word []byte) (int64, error) {
	if !a.period && a.tick == 0 {
		return 0, ErrNotAnInteger
	}
	p, ok := quota.ParsePeriod(word)
	if !ok {
		return 0, ErrNotAnInteger
	}
	n, unit := int64(p), time.Second
	if a.tick > 0 {
		unit = a.tick
		n = p.In(unit)
	}
	if p.In(unit) > a.hi {
		return 0, &quota.ArgumentError{Name: a.Name, Lo: a.lo, Hi: a.hi}
	}
	return n, nil
}

// ParseInteger parses an integer in Redis's notation or, if decimals is set, also in redis-cell's.
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
	if a.pairedWith != "" && len(words)%2 != 0 {
		return ErrArity(c.Row)
	}
	for i := 0; i < len(words); i += a.step() {
		if err := c.CheckKey(words[i]); err != nil {
			return err
		}
	}
	return nil
}

// step returns the distance, in words, between the repetitions of an argument.
func (a *Arg) step() int {
	if a.pairedWith != "" {
		return 2
	}
	return 1
}

// CheckKey refuses a key that is too long (max-key-size).
func (c *Call) CheckKey(key []byte) error {
	if len(key) > c.Server.MaxKeySize {
		return c.errKeyTooLong()
	}
	return nil
}

// BindOptions binds the options of a row whose last positional argument repeats. They begin at an index of the words.
func (c *Call) BindOptions(at int) error {
	g := &c.Row.Grammar
	c.Extras = 0
	for i := g.positional; i < g.usual; i++ {
		c.Bound[i] = bound{N: g.slots[i].or}
	}
	return c.bindOptions(at)
}

// bindOptions binds the options, which follow the positional arguments from index at on.
func (c *Call) bindOptions(at int) error {
	g := &c.Row.Grammar
	for ; at < len(c.Words); at++ {
		i, token := g.option(c.Words[at])
		if i >= g.usual {
			if c.Extras++; c.Extras == 1 {
				clear(c.Bound[g.usual:])
			}
		}
		if i < 0 || c.Bound[i].At != 0 && !g.args[i].repeatable {
			return g.errSyntax(c.Words[at])
		}
		a, b := &g.args[i], &c.Bound[i]
		b.At = at
		if a.kind == choiceArg || a.kind == flagArg {
			if b.N != 0 && b.N != int64(token)+1 {
				return g.errSyntax(c.Words[at]) // two tokens of one choice
			}
			if b.N = int64(token) + 1; a.operand == "" {
				continue
			}
		}
		if at++; at == len(c.Words) {
			return g.errSyntax(c.Words[at-1])
		}
		b.At = at
		if err := c.Take(a, b, c.Words[at]); err != nil {
			return err
		}
		if a.second == nil {
			continue
		}
		if at++; at == len(c.Words) {
			return g.errSyntax(c.Words[at-1])
		}
		if err := c.Take(a.second, b, c.Words[at]); err != nil {
			return err
		}
	}
	return nil
}

// errSyntax returns the error for a word where the options should be.
func (g *grammar) errSyntax(word []byte) error {
	if g.ours {
		return ErrSyntaxAt(word)
	}
	return ErrSyntax
}

// isOption reports whether a word begins an option. Its first check is inlined and fails for
// numbers, which most calls have here.
func (g *grammar) isOption(word []byte) bool {
	return len(word) > 0 && word[0] >= 'A' && g.begins(word)
}

// begins reports whether a word begins an option.
func (g *grammar) begins(word []byte) bool {
	i, _ := g.option(word)
	return i >= 0
}

// option finds the option that a word begins. It returns the index of the argument, and the index of
// the word among its tokens; the argument is -1 if there is no such option.
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

// FoldEqual reports whether a word equals a name in upper case, ignoring the word's case.
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

// HasWord reports whether one of the words is a name in upper case, ignoring the words' case.
func HasWord(words [][]byte, upper string) bool {
	return slices.ContainsFunc(words, func(word []byte) bool { return FoldEqual(word, upper) })
}

// ParseIndex parses an integer of 32 bits; its errors are Redis's.
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
