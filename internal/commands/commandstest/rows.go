package commandstest

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"cellserver/internal/command"
	"cellserver/internal/commands"
)

// TableOf returns a table of all commands and of further rows, which may replace commands and need
// no documentation.
func TableOf(planted ...*command.Command) *command.Table {
	return TableWith(commands.All(), planted...)
}

// AddRows adds rows to a server's table.
func (s *Server) AddRows(planted ...*command.Command) {
	s.Instance.Table = TableWith(s.Instance.Table.Rows, planted...)
}

// TableWith returns a table of rows and of further ones, which may replace them and need no documentation.
func TableWith(all []*command.Command, planted ...*command.Command) *command.Table {
	for _, row := range planted {
		row.Summary, row.Since, row.Complexity = "Planted.", "1.0.0", "O(1)"
		row.Group, row.Reply, row.KeyAccess = "server", "Something.", cmp.Or(row.KeyAccess, "RW")
	}
	listed := slices.DeleteFunc(all, func(row *command.Command) bool {
		return slices.ContainsFunc(planted, func(other *command.Command) bool { return other.Name == row.Name })
	})
	table, err := command.NewTable(append(planted, listed...), AllAbilities)
	if err != nil {
		panic(err)
	}
	return table
}

// MinWords returns the number of words of the shortest call.
func MinWords(row *command.Command) int {
	least, _ := row.Words()
	return least
}

// AllRows returns all rows, including subcommands.
func AllRows() (rows []*command.Command) {
	for _, row := range commands.All() {
		rows = append(append(rows, row), row.Subs...)
	}
	return rows
}

// Encode returns a call in RESP.
func Encode(words []string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	return b.Bytes()
}

// Vocabulary returns the words of random calls: every name and token, and numbers at the limits.
func Vocabulary() []string {
	words := []string{"", "0", "-1", "1", "+1", "007", "2", "15", "9223372036854775807", "-9223372036854775808",
		"9223372036854775808",
		"1.5", "x", "key", "\x00\xff\r\n", "*", "[a-", "default", strings.Repeat("long", 40)}
	for _, row := range AllRows() {
		words = append(words, strings.Split(row.Name, "|")...)
		for _, a := range row.Args {
			words = append(words, a.Tokens...)
		}
	}
	return words
}

// Find returns the row of a name.
func Find(rows []*command.Command, name string) *command.Command {
	return rows[slices.IndexFunc(rows, func(row *command.Command) bool { return row.Name == name })]
}

// SampleCall returns a call of a row with the right number of words, with key in place of a key.
func SampleCall(row *command.Command, key string) []string {
	if row.Name == "cl.all" {
		return []string{row.Name, "1", "FIXED", key, "1", "1", "1"}
	}
	own := strings.Split(row.Name, "|")
	words := append(own, "1", "1", "1", "1", "1", "1")[:max(MinWords(row), len(own))]
	if first, _, _ := row.KeyPositions(); first != 0 {
		words[first] = key
	}
	return words
}
