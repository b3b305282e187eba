package backend

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// newListening returns the topology of Sentinels that watch the primary m, without connections to them.
func newListening(t *testing.T, now *int64) *sentinels {
	ctx, stop := context.WithCancel(t.Context())
	b := &Backend{stop: ctx, config: Config{Now: func() int64 { return *now }, Log: slog.New(slog.DiscardHandler),
		Address: Address{Master: "m"}, Silence: time.Minute}}
	s := &sentinels{backend: b, followed: map[string]bool{}}
	t.Cleanup(func() { stop(); s.following.Wait() })
	return s
}

const (
	selectedText = "slave 127.0.0.1:1 127.0.0.1 1 @ m 10.0.0.1 6379"
	oldPrimary   = "10.0.0.1:6379"
)

func isHeld(s *sentinels) bool { return s.held() != nil }

// From +selected-slave on requests are held back, until the failover has ended in one of three ways.
func TestRequestsAreHeldDuringAFailover(t *testing.T) {
	var now int64
	for event, text := range map[string]string{
		"-failover-abort-slave-timeout": "master m 10.0.0.1 6379",
		switched:                        "m 10.0.0.1 6379 127.0.0.1 1",
	} {
		s := newListening(t, &now)
		require.False(t, isHeld(s))
		s.heard(s.backend.stop, selectedReplica, selectedText)
		held := s.held()
		require.NotNil(t, held)
		s.heard(s.backend.stop, selectedReplica, selectedText) // another Sentinel says the same
		s.heard(s.backend.stop, event, text)
		<-held
		require.False(t, isHeld(s), event)
	}
	s := newListening(t, &now)
	ctx, give := context.WithCancel(t.Context())
	s.heard(ctx, selectedReplica, selectedText)
	held := s.held()
	give() // as the end of the longest time that a failover may take does
	<-held
}

// After a failover, answers of Sentinels that have not noticed yet are corrected, for some time.
func TestOldAnswersAreCorrected(t *testing.T) {
	var now int64
	s := newListening(t, &now)
	s.heard(s.backend.stop, switched, "m 10.0.0.1 6379 10.0.0.2 6379")
	assert.Equal(t, "10.0.0.2:6379", s.failover.primary(oldPrimary, now))
	assert.Equal(t, "10.0.0.3:6379", s.failover.primary("10.0.0.3:6379", now), "another one")
	now = int64(remembered)
	assert.Equal(t, oldPrimary, s.failover.primary(oldPrimary, now))

	s.heard(s.backend.stop, switched, "m 10.0.0.1 6379 10.0.0.2 6379")
	s.heard(s.backend.stop, switched, "m 10.0.0.2 6379 10.0.0.1 6379")
	assert.Equal(t, oldPrimary, s.failover.primary("10.0.0.2:6379", now), "and back")

	s.heard(s.backend.stop, selectedReplica, selectedText)
	s.heard(s.backend.stop, "-failover-abort-no-good-slave", "master m 10.0.0.1 6379")
	assert.Equal(t, oldPrimary, s.failover.primary(oldPrimary, now), "nothing has changed")
}

// Events about other primaries, and texts of another form, change nothing.
func TestOtherEventsChangeNothing(t *testing.T) {
	var now int64
	s := newListening(t, &now)
	for _, e := range [][2]string{
		{selectedReplica, "slave 127.0.0.1:1 127.0.0.1 1 @ other 10.0.0.1 6379"}, {selectedReplica, ""},
		{selectedReplica, "slave 127.0.0.1:1 127.0.0.1 1"}, {switched, "other 10.0.0.1 6379 10.0.0.2 6379"},
		{switched, "m 10.0.0.1"}, {"+sdown", "master m 10.0.0.1 6379"},
	} {
		s.heard(s.backend.stop, e[0], e[1])
		require.False(t, isHeld(s), e)
		require.Equal(t, oldPrimary, s.failover.primary(oldPrimary, now), e)
	}
	s.heard(s.backend.stop, selectedReplica, selectedText)
	s.heard(s.backend.stop, "-failover-abort-slave-timeout", "master other 10.0.0.1 6379")
	require.True(t, isHeld(s))
}
