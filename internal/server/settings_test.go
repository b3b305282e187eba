package server

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/commands"
	"cellserver/internal/option"
	"cellserver/internal/store/memory"
)

func TestOutputLimits(t *testing.T) {
	const defaults = "normal 268435456 67108864 60 slave 268435456 67108864 60 pubsub 33554432 8388608 60"
	const wrong = "it must be a class (normal, pubsub or replica), a hard limit, a soft limit and seconds, such as"
	for _, c := range []struct{ text, shown, refused string }{
		{"normal 0 0 0", "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60", ""},
		{"pubsub 1mb 512kb 5 replica 7 6 5", "normal 268435456 67108864 60 slave 7 6 5 pubsub 1048576 524288 5", ""},
		{"", defaults, "Wrong number of arguments in buffer limit configuration."},
		{"normal 1 1", defaults, "Wrong number of arguments in buffer limit configuration."},
		{"normal 1 1 1 other 1 1 1", defaults, "Invalid client class specified in buffer limit configuration."},
		{"normal -1 1 1", defaults, "Error in hard, soft or soft_seconds setting in buffer limit configuration."},
		{"normal 1 1 -1", defaults, "Error in hard, soft or soft_seconds setting in buffer limit configuration."},
		{"normal 1 1 1073741825", defaults, "Error in hard, soft or soft_seconds setting in buffer limit configuration."},
	} {
		limits := outputLimits{&NewSettings().Output}
		refused, set := limits.Check(c.text), limits.Set(c.text)
		require.Equal(t, c.shown, limits.Show(), c.text)
		if c.refused == "" {
			require.NoError(t, refused, c.text)
			require.NoError(t, set, c.text)
			continue
		}
		require.EqualError(t, refused, c.refused, c.text)
		require.ErrorContains(t, set, wrong, c.text)
	}
	require.Equal(t, "normal 256mb 64mb 60 slave 256mb 64mb 60 pubsub 32mb 8mb 60",
		outputLimits{&NewSettings().Output}.String())
}

// TestSystemMaxClients checks that maxclients cannot exceed the system's limit, if this limit is
// known.
func TestSystemMaxClients(t *testing.T) {
	settings := NewSettings()
	kind := maxClients{option.Number(&settings.MaxClients, 1, 100), &settings.SystemMaxClients}
	require.NoError(t, kind.Check("100"))
	settings.SystemMaxClients = 50
	require.NoError(t, kind.Check("50"))
	require.EqualError(t, kind.Check("51"),
		"The operating system is not able to handle the specified number of clients, try with 50")
	require.Error(t, kind.Check("0"))
	require.Error(t, kind.Check("x"))
}

// TestSettingsTakeEffect checks that settings are applied at the start and when they change.
func TestSettingsTakeEffect(t *testing.T) {
	data := memory.New(memory.Options{})
	t.Cleanup(func() { data.Close() })
	instance, err := commands.New(commands.Config{Store: data})
	require.NoError(t, err)
	settings, options := NewSettings(), new(option.List)
	require.NoError(t, options.Add(settings.Options()...))
	settings.Timeout = 7
	s, err := New(instance, Config{Settings: settings, Options: options})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Shutdown(t.Context()) })
	require.EqualValues(t, 7*time.Second, s.timeout.Load())
	require.EqualValues(t, 10_000, s.maxClients.Load())
	require.NoError(t, options.Set([]option.Value{
		{Name: "timeout", Value: "9"}, {Name: "maxclients", Value: "3"},
		{Name: "client-output-buffer-limit", Value: "pubsub 10 5 1"},
	}, false))
	require.EqualValues(t, 9*time.Second, s.timeout.Load())
	require.EqualValues(t, 3, s.maxClients.Load())
	require.Equal(t, OutputLimit{10, 5, time.Second}, s.output.Load().pubsub)
	require.Equal(t, OutputLimit{256 << 20, 64 << 20, time.Minute}, s.output.Load().normal)

	settings.Transport = "pigeons"
	_, err = New(instance, Config{Settings: settings})
	require.EqualError(t, err, `no transport "pigeons": there are event-loop and goroutines`)
}
