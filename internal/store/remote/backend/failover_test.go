package backend

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
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
	s := &sentinels{backend: b, followed: map[string]context.CancelFunc{}}
	t.Cleanup(func() { stop(); s.following.Wait() })
	return s
}

const (
	selectedText = "slave 127.0.0.1:1 127.0.0.1 1 @ m 10.0.0.1 6379"
	oldPrimary   = "10.0.0.1:6379"
)

func isHeld(s *sentinels) bool { return s.held() != nil }

// From +selected-slave on, requests are held back until the failover has ended in one of three ways.
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
	give() // the longest time that a failover may take has the same effect
	<-held
}

// For some time after a failover, answers of Sentinels that have not noticed it yet are corrected.
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

// Sentinels come and go, as pods do. The backend listens to new Sentinels, however many there were before, and stops
// trying old ones after a time.
func TestSentinelsAreReplaced(t *testing.T) {
	const rounds = 3
	var now int64
	s := newListening(t, &now)
	asked, fresh := newFake(t), newFake(t)
	s.backend.config.Address.Nodes = []string{asked.addr}
	s.current = make(chan *sentinelClient, 1)
	s.current <- nil
	asked.set("ping", "+PONG\r\n")
	fresh.set("ping", "+PONG\r\n")
	asked.set("sentinel get-master-addr-by-name", arrayOf(bulk("10.0.0.1"), bulk("6379")))
	_, err := s.answer(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { (<-s.current).close() })

	for round := range rounds {
		var all []string
		for i := range maxSentinels {
			all = append(all, sentinelFields(fmt.Sprintf("127.0.%d.%d:1", 1+round, 1+i), "sentinel"))
		}
		asked.set("sentinel sentinels", arrayOf(all...))
		s.discover(t.Context())
		assert.LessOrEqual(t, len(s.followed), maxSentinels)
	}
	down := sentinelFields("127.0.0.1:1", "s_down,sentinel,disconnected")
	var all []string
	for range maxSentinels {
		all = append(all, down)
	}
	asked.set("sentinel sentinels", arrayOf(append(all, sentinelFields(fresh.addr, "sentinel"))...))
	s.discover(t.Context())
	assert.Len(t, s.followed, 3, "the one of the URL, the new one, and one that is down")
	require.Eventually(t, func() bool { return fresh.called("psubscribe") > 0 }, time.Minute, time.Millisecond)

	asked.set("sentinel sentinels", "-ERR busy\r\n")
	s.discover(t.Context())
	assert.Len(t, s.followed, 3, "no answer changes nothing")
}

// arrayOf returns an array of replies.
func arrayOf(items ...string) string {
	return fmt.Sprintf("*%d\r\n", len(items)) + strings.Join(items, "")
}

// sentinelFields returns an item of the reply to SENTINEL SENTINELS.
func sentinelFields(addr, flags string) string {
	host, port, _ := net.SplitHostPort(addr)
	return arrayOf(bulk("name"), bulk("x"), bulk("ip"), bulk(host), bulk("port"), bulk(port), bulk("flags"), bulk(flags))
}
