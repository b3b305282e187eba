package commands

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/transcript"
)

// everyRow is all rows, subcommands included.
func everyRow() (rows []*Command) {
	for _, row := range All() {
		rows = append(append(rows, row), row.Subs...)
	}
	return rows
}

// flaw says which field of a row is wrong, and how; "" if none is.
func flaw(row *Command) string {
	switch {
	case row.Name == "" || row.Name != strings.ToLower(row.Name) || len(row.Name) > maxName:
		return fmt.Sprintf("Name: lower case, 1 to %d bytes", maxName)
	case row.Summary == "" || !strings.HasSuffix(row.Summary, "."):
		return "Summary: a sentence, with a full stop"
	case row.Since == "":
		return "Since: the version that had it first"
	case row.Complexity == "":
		return "Complexity: such as O(1)"
	case !slices.ContainsFunc(groups, func(g group) bool { return g.name == row.Group }):
		return "Group: one of the manual's (groups in manual.go)"
	case row.Run == nil && row.Subs == nil:
		return "Run: the code, or Subs: subcommands"
	case row.Run != nil && row.Reply == "":
		return "Reply: what it answers, for the manual"
	case len(row.Args) > maxArgs:
		return fmt.Sprintf("Args: no more than %d", maxArgs)
	case row.Flags&Write != 0 && row.Flags&ReadOnly != 0:
		return "Flags: Write or ReadOnly, not both"
	}
	return argumentsFlaw(row)
}

func argumentsFlaw(row *Command) string {
	stage := 0 // required, then optional, then options
	for i, a := range row.Args {
		at := 0
		switch {
		case a.tokens != nil:
			at = 2
		case a.optional:
			at = 1
		}
		if at < stage {
			return "Args: " + a.Name + " stands behind what may be left out"
		}
		stage = at
		if a.many && i != len(row.Args)-1 {
			return "Args: " + a.Name + " repeats and is not the last"
		}
		if a.kind == keyArg && row.KeyAccess == "" {
			return "KeyAccess: what it does with its keys, such as RO ACCESS"
		}
	}
	return ""
}

func TestRowsAreSound(t *testing.T) {
	names := make(map[string]bool)
	for _, row := range everyRow() {
		require.Empty(t, flaw(row), row.Name)
		require.False(t, names[row.Name], "%s is there twice", row.Name)
		names[row.Name] = true
	}
}

func TestFlawsAreFound(t *testing.T) {
	for want, spoil := range map[string]func(*Command){
		"Name: ":                              func(r *Command) { r.Name = "Get" },
		"Summary: ":                           func(r *Command) { r.Summary = "Gets" },
		"Since: ":                             func(r *Command) { r.Since = "" },
		"Complexity: ":                        func(r *Command) { r.Complexity = "" },
		"Group: ":                             func(r *Command) { r.Group = "strings" },
		"Run: ":                               func(r *Command) { r.Run = nil },
		"Reply: ":                             func(r *Command) { r.Reply = "" },
		"Flags: ":                             func(r *Command) { r.Flags |= Write },
		"Args: no more than ":                 func(r *Command) { r.Args = make([]Arg, maxArgs+1) },
		"Args: b stands behind what may be":   func(r *Command) { r.Args = []Arg{Word("a").Optional(), Word("b")} },
		"Args: a repeats and is not the last": func(r *Command) { r.Args = []Arg{Word("a").Many(), Word("b")} },
		"KeyAccess: ":                         func(r *Command) { r.KeyAccess = "" },
	} {
		row := get
		spoil(&row)
		require.True(t, strings.HasPrefix(flaw(&row), want), "%s, want %s", flaw(&row), want)
	}
}

// Every row refuses a call that is a word short or, where there is a most, a word too long, in Redis's words.
func TestArityIsTheGrammars(t *testing.T) {
	s := newStill(t)
	for _, row := range everyRow() {
		if row == &exec {
			continue // which says that the transaction is discarded
		}
		g := newGrammar(row)
		refused := fmt.Sprintf("-ERR wrong number of arguments for '%s' command\r\n", row.Name)
		own := strings.Split(row.Name, "|")
		wrong := []int{g.min - 1}
		if g.max != 0 {
			wrong = append(wrong, g.max+1)
		}
		for _, words := range wrong {
			if words < len(own) {
				continue
			}
			call := append(own, strings.Fields(strings.Repeat("1 ", words-len(own)))...)
			if row.Subs != nil && words > 1 {
				continue // the second word is a subcommand's name
			}
			require.Equal(t, refused, s.dial().say(t, strings.Join(call, " ")), "%d words", words)
		}
	}
}

// A key that is longer than the bound is refused by every command that takes one, whatever stands behind it.
func TestKeysAreBounded(t *testing.T) {
	s := newStill(t)
	long := strings.Repeat("k", NewSettings().MaxKeySize+1)
	for _, row := range everyRow() {
		first, _, _ := row.keyPositions()
		if first == 0 {
			continue
		}
		words := append(strings.Split(row.Name, "|"), "1", "1", "1", "1", "1")[:min(max(newGrammar(row).min, 2), 6)]
		if row.Name == "cl.all" {
			words = []string{row.Name, "1", "FIXED", "", "1", "1", "1"}
		}
		words[first] = long
		c := s.dial()
		require.NoError(t, c.Send(encode(words)))
		require.Equal(t, "-ERR key is longer than max-key-size (65536 bytes)\r\n", c.output(), row.Name)
		words[first] = long[1:]
		require.NoError(t, c.Send(encode(words)))
		require.NotContains(t, c.output(), "longer", row.Name)
	}
}

func encode(words []string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	return b.Bytes()
}

// vocabulary is what random calls are made of: every name and token, and numbers at the edges.
func vocabulary() []string {
	words := []string{"", "0", "-1", "1", "+1", "007", "2", "15", "9223372036854775807", "-9223372036854775808", "9223372036854775808",
		"1.5", "x", "key", "\x00\xff\r\n", "*", "[a-", "default", strings.Repeat("long", 40)}
	for _, row := range everyRow() {
		words = append(words, strings.Split(row.Name, "|")...)
		for _, a := range row.Args {
			words = append(words, a.tokens...)
		}
	}
	return words
}

// replies is how many a call gets: one, but for those that get one a channel.
func replies(words []string, first string) int {
	row := NewTable(All()).Lookup([]byte(words[0]))
	if row == nil || row.Group != "pubsub" || row.Traits&WhileSubscribed == 0 || strings.HasPrefix(first, "-") {
		return 1
	}
	return max(1, len(words)-1)
}

// One call, one reply, whatever the words are.
func FuzzOneCallOneReply(f *testing.F) {
	words := vocabulary()
	for seed := range uint64(400) {
		random := rand.New(rand.NewPCG(seed, 1))
		call := []string{All()[seed%uint64(len(All()))].Name}
		for range random.IntN(8) {
			call = append(call, words[random.IntN(len(words))])
		}
		f.Add(strings.Join(call, "\n"), seed%2 == 0)
	}
	f.Fuzz(func(t *testing.T, call string, resp3 bool) {
		c := newStill(t).dial()
		if resp3 {
			c.say(t, "HELLO 3")
		}
		words := strings.Split(call, "\n")
		require.NoError(t, c.Send(encode(words)))
		c.session.instance.EndWaits() // a WAIT may last for ever
		c.settle()
		if c.session.hush != speaking {
			return // CLIENT REPLY: no reply is what was asked for
		}
		out := []byte(c.output())
		first, rest, err := transcript.NextReply(out)
		require.NoError(t, err, "%q", out)
		for range replies(words, first) - 1 {
			_, rest, err = transcript.NextReply(rest)
			require.NoError(t, err, "%q", out)
		}
		require.Empty(t, rest)
	})
}
