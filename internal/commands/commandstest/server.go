// Package commandstest has servers in this process, with all commands, for the tests of packages whose code is
// reached by calls.
package commandstest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/command"
	"cellserver/internal/commands"
	"cellserver/internal/option"
	policies "cellserver/internal/policy"
	"cellserver/internal/session/sessiontest"
	"cellserver/internal/store"
	memstore "cellserver/internal/store/memory"
)

// Server is an instance in this process with its options and policies.
type Server struct {
	*sessiontest.Server
	Options  *option.List
	Policies *commands.PolicyFiles
}

// Start is the first instant of a server's clock, 2026-01-01 00:00:00 UTC in nanoseconds, which makes times in
// conversations readable.
const Start = 1767225600_000000000

// New returns a server over a memory store, on a clock that moves only when a test moves it.
func New(t testing.TB) *Server { return NewOn(t, store.NewStillClock(Start)) }

// NewOn is New on another clock.
func NewOn(t testing.TB, clock store.Clock) *Server {
	s, err := NewWith(t, clock, func(*commands.Settings) {})
	require.NoError(t, err)
	return s
}

// NewWith is NewOn with other settings.
func NewWith(t testing.TB, clock store.Clock, change func(*commands.Settings)) (*Server, error) {
	return NewIn(t, memstore.Options{Clock: clock, SweepEvery: -1}, change)
}

// NewIn is NewWith over a memory store with other options.
func NewIn(t testing.TB, in memstore.Options, change func(*commands.Settings)) (*Server, error) {
	return NewOver(t, memstore.New(in), change)
}

// NewOver is NewWith over any store.
func NewOver(t testing.TB, over store.Store, change func(*commands.Settings)) (*Server, error) {
	return NewReading(t, over, ExamplePolicies, change)
}

// NewReading is NewOver with other policies.
func NewReading(t testing.TB, over store.Store, read func() ([]policies.File, error),
	change func(*commands.Settings)) (*Server, error) {
	settings, options := commands.NewSettings(), new(option.List)
	settings.Admin.Debug = "local"
	change(settings)
	require.NoError(t, options.Add(ProcessOptions()...))
	require.NoError(t, options.Add(settings.Options()...))
	files := &commands.PolicyFiles{Read: read}
	instance, err := commands.New(commands.Config{Store: over, Version: "1.2.3", Port: 6379, Settings: settings,
		Options: options, Policies: files})
	if err != nil {
		over.Close()
		return nil, err
	}
	return &Server{Server: sessiontest.New(t, instance), Options: options, Policies: files}, nil
}

// NewWithRow returns a server whose table has one more row.
func NewWithRow(t *testing.T, row *command.Command) *Server {
	s := New(t)
	s.AddRows(row)
	return s
}

// Families is the folder of the families, in which their conversations are.
func Families() string {
	for dir := "."; ; dir = filepath.Join("..", dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "internal/commands")
		}
		if absolute, _ := filepath.Abs(dir); absolute == filepath.Dir(absolute) {
			panic("no go.mod above the test")
		}
	}
}

// ExamplePolicies reads the policies of the conversations.
func ExamplePolicies() ([]policies.File, error) {
	const name = "policy/testdata/policies.yaml"
	text, err := os.ReadFile(filepath.Join(Families(), name))
	return []policies.File{{Name: name, Text: text}}, err
}

// ProcessOptions returns options such as cmd/cellserver adds to the settings.
func ProcessOptions() []*option.Option {
	port, databases := 6379, 16
	const group, help = "Network", "-"
	return []*option.Option{
		{Name: "port", Group: group, Help: help, Kind: option.Number(&port, 0, 65535), Change: option.Immutable},
		{Name: "databases", Group: group, Help: help, Kind: option.Number(&databases, 1, 16), Change: option.Immutable},
		{Name: "maxclients", Group: group, Help: help, Kind: option.Number(new(int), 0, 1<<30), Change: option.Live},
		{Name: "timeout", Group: group, Help: help, Kind: option.Number(new(int), 0, 1<<30), Change: option.Live},
	}
}
