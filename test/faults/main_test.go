// Package faults tests what remains of the keys of a server with --dir after each kind of fault:
// the process is killed, stopped or suspended, the disk is full or fails, the folder is removed or
// cut, the clock is set. The server is the real binary.
//
// Clients change keys, and record each call with the times at which it was sent and answered, and
// what the keys hold after it. After the fault, a checker compares the keys with this history.
//
// Each test has a short form, which is part of `make test`. `make faults` runs the long form.
package faults

import (
	"os"
	"testing"
	"time"

	"cellserver/test/peer"
)

func TestMain(m *testing.M) {
	becomeListened()
	peer.Main(m)
}

// patience is the longest wait for anything that should happen. It is far longer than anything
// takes, because a test machine may be busy.
const patience = 60 * time.Second

// amount returns how often something is done: much more in the long form of the tests.
func amount(short, long int) int {
	if os.Getenv("CELLSERVER_TEST_FAULTS") == "long" {
		return long
	}
	return short
}

// began is when the tests began. All instants are durations since then, by a clock that cannot be
// set.
var began = time.Now()

func now() time.Duration { return time.Since(began) }
