package page

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// After a request for the history has failed, the page says so, and asks again a minute later, not with each message.
// The number of requests is exact: a message is drawn in one turn of the browser, and a request is counted when it
// begins.
func TestHistoryIsAskedForAgain(t *testing.T) {
	p, b := newPlace(t), startBrowser(t)
	p.call("CL.HISTORY", "*") // the history begins
	p.call("CL.TAKE", "alice", "api", 5)
	p.clock.Advance(2 * time.Second)
	b.open(p.url("viewer"))
	shows := func(text string) {
		t.Helper()
		b.until(`byId("history-error").hidden && byId("history-summary").textContent === ` + strconv.Quote(text))
	}
	shows("Decisions of all policies in the last 5 minutes: 1 allowed, 0 shadowed, 0 limited, 0 banned, 0 no decision")
	var first, now int
	b.get(&first, `asked`)
	b.eval(`window.realFetch = window.fetch, window.fetch = (to, ...rest) => String(to).endsWith("/history")
		? Promise.reject(new TypeError("planted")) : window.realFetch(to, ...rest)`)
	b.eval(`byId("history-policy").value = "api", byId("history-policy").dispatchEvent(new Event("change"))`)
	b.until(`byId("history-error").textContent === "planted" && !byId("history-error").hidden`)
	p.second(b)
	b.get(&now, `asked`)
	assert.Equal(t, first+1, now, "not with each message")
	b.eval(`window.fetch = window.realFetch`)
	p.clock.Advance(time.Minute)
	p.second(b)
	b.get(&now, `asked`)
	assert.Equal(t, first+2, now, "a minute later")
	shows("Decisions of api in the last 5 minutes: 1 allowed, 0 shadowed, 0 limited, 0 banned, 0 no decision")
	p.call("CL.TAKE", "alice", "api")
	p.second(b)
	b.get(&now, `asked`)
	assert.Equal(t, first+2, now, "the message is enough")
	shows("Decisions of api in the last 5 minutes: 2 allowed, 0 shadowed, 0 limited, 0 banned, 0 no decision")
	assert.Empty(t, b.complaints())
}
