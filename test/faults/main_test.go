// Package faults tests which keys a server with --dir has after each kind of fault: the process is
// killed, stopped or suspended, the disk is full or fails, files are removed or damaged, or the
// clock is set. The server is the real binary.
//
// Clients change keys, and record when each call was sent and answered, and the state of its keys
// after the call. After the fault, a checker compares the keys with this history.
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
	os.Setenv("CELLSERVER_POLICIES", "testdata/policies.yaml") // for all servers
	peer.Main(m)
}

// patience is the timeout of all waits. It is long because the machine may be busy.
const patience = 60 * time.Second

// amount returns the number of repetitions of a test: few in its short form, many in its long form.
func amount(short, long int) int {
	if os.Getenv("CELLSERVER_TEST_FAULTS") == "long" {
		return long
	}
	return short
}

// began is the time at which the tests began. All instants are durations since then, by a clock
// that cannot be set.
var began = time.Now()

func now() time.Duration { return time.Since(began) }
