package session_test

import (
	"slices"
	"testing"
	"time"

	"cellserver/internal/commands/commandstest"
	"cellserver/internal/racetest"
	"cellserver/internal/transcript"
)

// played returns the conversations that are also played to real servers, whose clocks do not wait for the calls.
func played(t *testing.T) []*transcript.File {
	return slices.DeleteFunc(commandstest.Conversations(t), func(f *transcript.File) bool { return f.Advances })
}

// Played conversations pass however slowly they are played, as on a busy machine.
func TestConversationsPlayedSlowly(t *testing.T) {
	for _, by := range []time.Duration{70 * time.Millisecond, 2 * time.Second} {
		slowly := func(s transcript.Stage) transcript.Stage {
			return transcript.Spaced(s, func() time.Duration { return by })
		}
		t.Run(by.String(), func(t *testing.T) {
			transcript.Check(t, played(t), func(t *testing.T) transcript.Stage { return slowly(commandstest.New(t)) }, false)
		})
		t.Run(by.String()+" over a store", func(t *testing.T) {
			files := slices.DeleteFunc(played(t), func(f *transcript.File) bool { return f.Memory != "" })
			transcript.Check(t, files, func(t *testing.T) transcript.Stage { return slowly(commandstest.RemoteStage(t)) }, false)
		})
	}
}

// Played conversations also pass if a minute goes by before any one of their calls. In long conversations,
// the test tries only some of the calls.
func TestConversationsWithAPause(t *testing.T) {
	racetest.HasOneGoroutine(t)
	for _, f := range played(t) {
		t.Run(f.Base(), func(t *testing.T) {
			for at, calls := 0, 1; at < calls; at += 1 + calls/20 {
				made := 0
				for _, d := range f.Play(transcript.Spaced(commandstest.New(t), func() (by time.Duration) {
					if made == at {
						by = time.Minute
					}
					made++
					return by
				})) {
					t.Error(d)
				}
				calls = made
			}
		})
	}
}
