package command_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/command"
	"cellserver/internal/commands"
	"cellserver/internal/commands/commandstest"
	"cellserver/internal/transcript"
)

// everyCommand is a table of all commands.
var everyCommand = commandstest.TableOf()

func TestRowsAreValid(t *testing.T) {
	_, err := command.NewTable(commands.All(), commandstest.AllAbilities)
	require.NoError(t, err)
	_, err = command.NewTable(append(commands.All(), commandstest.Find(commands.All(), "get")), commandstest.AllAbilities)
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
		"Args: a repeats and is not the last before the options": func(r *command.Command) {
			r.Args = []command.Arg{command.Word("a").Many(),
				command.Word("b")}
		},
		"KeyAccess: ": func(r *command.Command) { r.KeyAccess = "" },
	} {
		row := *commandstest.Find(commands.All(), "get")
		corrupt(&row)
		_, err := command.NewTable([]*command.Command{&row}, commandstest.AllAbilities)
		require.ErrorContains(t, err, want)
	}
}

// Every row refuses a call with a word too few and, where there is a maximum, a word too many, with
// Redis's error.
func TestArityFollowsGrammar(t *testing.T) {
	s := commandstest.New(t)
	for _, row := range commandstest.AllRows() {
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
			require.Equal(t, refused, s.Connect().Do(t, strings.Join(call, " ")), "%d words", words)
		}
	}
}

// A key that exceeds the bound is refused by every command that has keys, whatever follows it.
func TestKeysAreBounded(t *testing.T) {
	s := commandstest.New(t)
	long := strings.Repeat("k", commands.NewSettings().MaxKeySize+1)
	for _, row := range commandstest.AllRows() {
		first, _, _ := row.KeyPositions()
		if first == 0 {
			continue
		}
		words := append(strings.Split(row.Name, "|"), "1", "1", "1", "1", "1")[:min(max(commandstest.MinWords(row), 2), 6)]
		if row.Name == "cl.all" {
			words = []string{row.Name, "1", "FIXED", "", "1", "1", "1"}
		}
		words[first] = long
		c := s.Connect()
		require.NoError(t, c.Send(commandstest.Encode(words)))
		require.Equal(t, "-ERR key is longer than max-key-size (65536 bytes)\r\n", c.Output(), row.Name)
		words[first] = long[1:]
		require.NoError(t, c.Send(commandstest.Encode(words)))
		require.NotContains(t, c.Output(), "longer", row.Name)
	}
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
	words := commandstest.Vocabulary()
	for seed := range uint64(400) {
		random := rand.New(rand.NewPCG(seed, 1))
		call := []string{commands.All()[seed%uint64(len(commands.All()))].Name}
		for range random.IntN(8) {
			call = append(call, words[random.IntN(len(words))])
		}
		f.Add(strings.Join(call, "\n"), seed%2 == 0)
	}
	f.Fuzz(func(t *testing.T, call string, resp3 bool) {
		s := commandstest.New(t)
		c := s.Connect()
		if resp3 {
			c.Do(t, "HELLO 3")
		}
		words := strings.Split(call, "\n")
		require.NoError(t, c.Send(commandstest.Encode(words)))
		s.Instance.UnblockAll() // a WAIT may have no timeout
		c.Settle()
		if len(words) > 1 && strings.EqualFold(words[0]+" "+words[1], "client reply") {
			return // CLIENT REPLY has turned replies off
		}
		out := []byte(c.Output())
		first, rest, err := transcript.NextReply(out)
		require.NoError(t, err, "%q", out)
		for range replyCount(words, first) - 1 {
			_, rest, err = transcript.NextReply(rest)
			require.NoError(t, err, "%q", out)
		}
		require.Empty(t, rest)
	})
}
