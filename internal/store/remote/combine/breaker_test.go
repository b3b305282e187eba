package combine

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

// The breaker also opens for a server that accepts connections and then cuts them: an open
// connection alone is not a success. The pauses before another attempt grow.
func TestBreakerOfServerThatCutsConnections(t *testing.T) {
	d := newDesk(t)
	ended := 0
	for d.m.Counters().Openings == 0 && ended < 100 {
		ended++
		d.submit(d.add(fmt.Sprint(ended), 1, "k"))
		for len(d.out) == 0 {
			d.advance(ms)
		}
		d.reply(func(b *Batch) {
			allReply(Unknown)(b)
			b.Failed = true
		})
	}
	assert.Equal(t, failuresToOpen, ended)
	d.m.counters.Connects = 0
	for begin := d.now; d.now < begin+1000*ms; d.advance(ms) {
		d.m.Submit(d.now, d.add("a", 1, "k"))
		if len(d.out) > 0 {
			d.reply(func(b *Batch) { allReply(Unknown)(b); b.Failed = true })
		}
	}
	assert.LessOrEqual(t, d.m.Counters().Connects, int64(12))
}

// The breaker of a server that hangs opens although all connections to it wait for one reply each.
func TestBreakerOfServerThatHangs(t *testing.T) {
	d := newDesk(t)
	d.submit(d.add("a", 1, "k"))
	d.submit(d.add("b", 1, "j"))
	assert.Len(t, d.out, 2)
	d.advance(300 * ms)
	assert.Equal(t, int64(1), d.m.Counters().Openings)
}
