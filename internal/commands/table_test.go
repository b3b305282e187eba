package commands

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/command"
	"cellserver/internal/transcript"
)

// everyCommand is a table of all commands.
var everyCommand = tableOf()

// tableOf returns a table of all commands and of further rows, which may replace commands and need
// no documentation.
func tableOf(planted ...*command.Command) *command.Table { return tableWith(All(), planted...) }

// addRows adds rows to a server's table.
func (s *testServer) addRows(planted ...*command.Command) {
	s.instance.Table = tableWith(s.families.commands(), planted...)
}

func tableWith(all []*command.Command, planted ...*command.Command) *command.Table {
	for _, row := range planted {
		row.Summary, row.Since, row.Complexity = "Planted.", "1.0.0", "O(1)"
		row.Group, row.Reply, row.KeyAccess = "server", "Something.", cmp.Or(row.KeyAccess, "RW")
	}
	listed := slices.DeleteFunc(all, func(row *command.Command) bool {
		return slices.ContainsFunc(planted, func(other *command.Command) bool { return other.Name == row.Name })
	})
	table, err := command.NewTable(append(planted, listed...), allAbilities)
	if err != nil {
		panic(err)
	}
	return table
}

func minWords(row *command.Command) int {
	least, _ := row.Words()
	return least
}

// allRows returns all rows, including subcommands.
func allRows() (rows []*command.Command) {
	for _, row := range All() {
		rows = append(append(rows, row), row.Subs...)
	}
	return rows
}

func TestRowsAreValid(t *testing.T) {
	_, err := command.NewTable(All(), allAbilities)
	require.NoError(t, err)
	_, err = command.NewTable(append(All(), find(All(), "get")), allAbilities)
	require.EqualError(t, err, "get: Name: two rows have this name")
}

func TestFlawsAreFound(t *testing.T) {
	for want, corrupt := range map[string]func(*command.Command){
		"Name: ":              func(r *command.Command) { r.Name = "Get" },
		"Summary: ":           func(r *command.Command) { r.Summary = "Gets" },
		"Since: ":             func(r *command.Command) { r.Since = "" },
		"Complexity: ":        func(r *command.Command) { r.Complexity = "" },
		"Group: ":             func(r *command.Command) { r.Group = "strings" },
		"Run: ":               func(r *command.Command) { r.Run = nil },
		"Reply: ":             func(r *command.Command) { r.Reply = "" },
		"Flags: ":             func(r *command.Command) { r.Flags |= command.Write },
		"Args: no more than ": func(r *command.Command) { r.Args = make([]command.Arg, command.MaxArgs+1) },
		"Args: b follows an argument": func(r *command.Command) {
			r.Args = []command.Arg{command.Word("a").Optional(),
				command.Word("b")}
		},
		"Args: a repeats and is not the last": func(r *command.Command) {
			r.Args = []command.Arg{command.Word("a").Many(),
				command.Word("b")}
		},
		"KeyAccess: ": func(r *command.Command) { r.KeyAccess = "" },
	} {
		row := *find(All(), "get")
		corrupt(&row)
		_, err := command.NewTable([]*command.Command{&row}, allAbilities)
		require.ErrorContains(t, err, want)
	}
}

// Every row refuses a call with a word too few and, where there is a maximum, a word too many, with
// Redis's error.
func TestArityFollowsGrammar(t *testing.T) {
	s := newServer(t)
	for _, row := range allRows() {
		if row.Name == "exec" {
			continue // its error says that the transaction is discarded
		}
		least, most := row.Words()
		refused := fmt.Sprintf("-ERR wrong number of arguments for '%s' command\r\n", row.Name)
		own := strings.Split(row.Name, "|")
		wrong := []int{least - 1}
		if most != 0 {
			wrong = append(wrong, most+1)
		}
		for _, words := range wrong {
			if words < len(own) {
				continue
			}
			call := append(own, strings.Fields(strings.Repeat("1 ", words-len(own)))...)
			if row.Subs != nil && words > 1 {
				continue // the second word is a subcommand's name
			}
			require.Equal(t, refused, s.dial().do(t, strings.Join(call, " ")), "%d words", words)
		}
	}
}

// A key that exceeds the bound is refused by every command that has keys, whatever follows it.
func TestKeysAreBounded(t *testing.T) {
	s := newServer(t)
	long := strings.Repeat("k", NewSettings().MaxKeySize+1)
	for _, row := range allRows() {
		first, _, _ := row.KeyPositions()
		if first == 0 {
			continue
		}
		words := append(strings.Split(row.Name, "|"), "1", "1", "1", "1", "1")[:min(max(minWords(row), 2), 6)]
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

// vocabulary returns the words of random calls: every name and token, and numbers at the limits.
func vocabulary() []string {
	words := []string{"", "0", "-1", "1", "+1", "007", "2", "15", "9223372036854775807", "-9223372036854775808",
		"9223372036854775808",
		"1.5", "x", "key", "\x00\xff\r\n", "*", "[a-", "default", strings.Repeat("long", 40)}
	for _, row := range allRows() {
		words = append(words, strings.Split(row.Name, "|")...)
		for _, a := range row.Args {
			words = append(words, a.Tokens...)
		}
	}
	return words
}

// replyCount returns how many replies a call gets: one, except for calls that get one per channel.
func replyCount(words []string, first string) int {
	row := everyCommand.Lookup([]byte(words[0]))
	if row == nil || row.Group != "pubsub" || row.Traits&command.WhileSubscribed == 0 || strings.HasPrefix(first, "-") {
		return 1
	}
	return max(1, len(words)-1)
}

// Every call gets one reply, whatever its words are.
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
		s := newServer(t)
		c := s.dial()
		if resp3 {
			c.do(t, "HELLO 3")
		}
		words := strings.Split(call, "\n")
		require.NoError(t, c.Send(encode(words)))
		s.instance.UnblockAll() // a WAIT may have no timeout
		c.settle()
		if len(words) > 1 && strings.EqualFold(words[0]+" "+words[1], "client reply") {
			return // CLIENT REPLY has turned replies off
		}
		out := []byte(c.output())
		first, rest, err := transcript.NextReply(out)
		require.NoError(t, err, "%q", out)
		for range replyCount(words, first) - 1 {
			_, rest, err = transcript.NextReply(rest)
			require.NoError(t, err, "%q", out)
		}
		require.Empty(t, rest)
	})
}
