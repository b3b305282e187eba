package command_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/command"
	"cellserver/internal/commands"
	"cellserver/internal/commands/commandstest"
)

// Instances of one process share the rows, but nothing that is derived from the rows. The race
// detector finds a table that writes to a row while another reads it.
func TestTablesShareNoMemory(t *testing.T) {
	var playing sync.WaitGroup
	for range 2 {
		playing.Go(func() {
			c := commandstest.New(t).Connect()
			require.Equal(t, ":1\r\n", c.Do(t, "INCR n"))
			require.Equal(t, "+OK\r\n", c.Do(t, "CLIENT SETNAME x"))
			require.Contains(t, c.Do(t, "CONFIG HELP"), "CONFIG <subcommand>")
		})
	}
	playing.Wait()
}

// A table owns its rows: another table with more rows does not change them.
func TestTableOwnsItsRows(t *testing.T) {
	first := commandstest.TableOf()
	second := commandstest.TableOf(&command.Command{Name: "planted", Run: func(*command.Call) error { return nil }})
	row := first.Lookup([]byte("get"))
	get := commandstest.Find(commands.All(), "get")
	require.NotSame(t, get, row)
	require.True(t, row.Name == get.Name)
	require.NotEqual(t, row.Number, second.Lookup([]byte("get")).Number)
	require.Same(t, first.Lookup([]byte("client")), first.ByName["client|id"].Parent)
	require.Zero(t, get.Number, "what a table derives does not stand in the row that it was given")
}
