package commands

import (
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/command"
)

// Instances of one process share the rows, and nothing that is derived from them. The race detector
// finds a table that writes to a row while another reads it.
func TestTablesShareNoMemory(t *testing.T) {
	var playing sync.WaitGroup
	for range 2 {
		playing.Go(func() {
			c := newServer(t).dial()
			require.Equal(t, ":1\r\n", c.do(t, "INCR n"))
			require.Equal(t, "+OK\r\n", c.do(t, "CLIENT SETNAME x"))
			require.Contains(t, c.do(t, "CONFIG HELP"), "CONFIG <subcommand>")
		})
	}
	playing.Wait()
}

// A table owns its rows: another table with more rows does not change them.
func TestTableOwnsItsRows(t *testing.T) {
	first := tableOf()
	second := tableOf(&command.Command{Name: "planted", Run: func(*command.Call) error { return nil }})
	row := first.Lookup([]byte("get"))
	get := find(All(), "get")
	require.NotSame(t, get, row)
	require.True(t, row.Name == get.Name)
	require.NotEqual(t, row.Number, second.Lookup([]byte("get")).Number)
	require.Same(t, first.Lookup([]byte("client")), first.ByName["client|id"].Parent)
	require.Zero(t, get.Number, "what a table derives does not stand in the row that it was given")
}

func find(rows []*command.Command, name string) *command.Command {
	return rows[slices.IndexFunc(rows, func(row *command.Command) bool { return row.Name == name })]
}
