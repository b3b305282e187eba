package pubsub

import (
	"sync"
	"sync/atomic"

	"cellserver/internal/client"
	"cellserver/internal/command"
)

// Announcer publishes messages of the server itself, which calls of clients cause. A message to few subscribers is
// published in the turn of the call, as PUBLISH does; messages that take longer wait for a goroutine of the Announcer.
// Messages keep their order. A subscriber that reads too slowly is disconnected, as always.
type Announcer struct {
	Channels *Channels
	Busy     *atomic.Int32 // counts goroutines that need the event loops to yield

	lost atomic.Int64

	mu      sync.Mutex
	waiting []Message
	sending bool // a goroutine publishes messages
}

// The bounds of an Announcer. Messages beyond are lost, and counted.
const (
	maxAnnouncements = 1024                  // that wait
	announceWork     = 16 * command.CallWork // in the turn of a call: 32 subscribers
)

// Lost returns how many messages were lost.
func (a *Announcer) Lost() int64 { return a.lost.Load() }

// HasListeners reports whether any client has subscribed to a channel or a pattern.
func (a *Announcer) HasListeners() bool { return a.Channels.Clients.Load() > 0 }

// Announce publishes a message, or has it published soon. It is called after the decision of a call, with no key
// locked.
func (a *Announcer) Announce(c *command.Call, channel string, payload []byte) {
	m := Message{Kind: client.ToChannel, Channel: []byte(channel), Payload: payload}
	work := a.Channels.Work(m)
	a.mu.Lock()
	switch {
	case work <= announceWork && !a.sending:
		a.mu.Unlock()
		c.Work += work
		a.Channels.Publish(m, func() {})
		return
	case len(a.waiting) >= maxAnnouncements:
		a.lost.Add(1)
	default:
		a.waiting = append(a.waiting, m)
	}
	starts := !a.sending
	a.sending = true
	a.mu.Unlock()
	if starts {
		a.Busy.Add(1)
		go a.send()
	}
}

// send publishes messages until none waits.
func (a *Announcer) send() {
	defer a.Busy.Add(-1)
	for {
		a.mu.Lock()
		messages := a.waiting
		a.waiting = nil
		a.sending = len(messages) > 0
		a.mu.Unlock()
		if len(messages) == 0 {
			return
		}
		for _, m := range messages {
			a.Channels.Publish(m, func() {})
		}
	}
}
