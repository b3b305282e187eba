// Package exactness tests several real cellservers on one store: together they admit exactly what the
// limits allow, and their replies are right, while networks, servers and stores fail.
//
// Clients record each call: when it was sent and answered, and the reply. A checker then compares this history with
// the limits, by the clock of the store. The checker allows for what the clients cannot know: a call with the reply
// STOREUNSURE may have been counted, now or later, or not, and a failover forgets what the replica had not
// received.
//
// Each test has a short form, which is part of `make test`. `make exactness` runs the long form.
package exactness

import (
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"cellserver/test/peer"
)

func TestMain(m *testing.M) {
	logging.Disable() // otherwise go-redis reports that it cannot reach killed servers
	peer.Main(m)
}

// amount returns a number for the short form of a test, or for the long one.
func amount(short, long int) int {
	if os.Getenv("CELLSERVER_TEST_EXACTNESS") == "long" {
		return long
	}
	return short
}

// began is the time at which the tests began. All instants are durations since then, by a clock that
// cannot be set. The store's clock runs at the same speed, except while it is being corrected: see
// drift.
var began = time.Now()

func now() time.Duration { return time.Since(began) }

// never is later than every instant.
const never = time.Duration(1<<63 - 1)
