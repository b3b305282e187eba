package commands_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/command"
	"cellserver/internal/commands"
	"cellserver/internal/commands/commandstest"
	"cellserver/internal/store"
	memstore "cellserver/internal/store/memory"
	"cellserver/internal/store/storetest"
	"cellserver/internal/transcript"
)

// watchSteps makes the rows of a server check that each call that may overlap uses the store only
// once. wrong returns the names of the rows that have used it more often.
func watchSteps(s *commandstest.Server) (wrong func() []string) {
	var names []string
	for _, row := range s.Instance.Table.ByName {
		s.Plant(row.Name, func(c *command.Call, run func(*command.Call) error) error {
			err := run(c)
			if c.OneStep && c.View.(interface{ StepsMade() int }).StepsMade() > 1 {
				names = append(names, row.Name)
			}
			return err
		})
	}
	return func() []string { return names }
}

// newWaitingServer returns a server over a store whose calls wait.
func newWaitingServer(t *testing.T) *commandstest.Server {
	clock := store.NewStillClock(commandstest.Start)
	data := storetest.NewWaiting(memstore.New(memstore.Options{Clock: clock, SweepEvery: -1})).Run(1)
	s, err := commandstest.NewOver(t, data, func(*commands.Settings) {})
	require.NoError(t, err)
	return s
}

// All conversations pass on a store whose calls wait, and calls that may overlap use it once.
func TestConversationsOnWaitingStore(t *testing.T) {
	transcript.Check(t, commandstest.Conversations(t), func(t *testing.T) transcript.Stage {
		s := newWaitingServer(t)
		wrong := watchSteps(s)
		t.Cleanup(func() { require.Empty(t, wrong(), "these rows need the trait SeveralSteps") })
		return s
	}, false)
}

func TestWatchStepsFindsSeveralSteps(t *testing.T) {
	s := newWaitingServer(t)
	s.Plant("get", func(c *command.Call, run func(*command.Call) error) error {
		_, _ = c.View.Lookup(c.Context, c.Words[1])
		return run(c)
	})
	wrong := watchSteps(s)
	s.Connect().Do(t, "GET k\r\nINCR k\r\nDUMP k")
	require.Equal(t, []string{"get"}, wrong())
}
