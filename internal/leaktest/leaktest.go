// Package leaktest finds goroutines that tests leave behind.
package leaktest

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// tries is how often Find looks before it gives up. A look takes about a second if there is a goroutine.
const tries = 60

// Main runs the tests of a package for TestMain, and fails if a goroutine is left afterwards. It ends the process.
func Main(m *testing.M) {
	status := m.Run()
	if status == 0 {
		if err := Find(); err != nil {
			fmt.Fprintln(os.Stderr, "after the tests:", err)
			status = 1
		}
	}
	os.Exit(status)
}

// Find returns an error if a goroutine is left that the options do not ignore. goleak waits for about a second for
// goroutines to end; on a busy machine, they may need longer, so Find waits up to a minute.
func Find(options ...goleak.Option) error { return find(tries, options...) }

func find(tries int, options ...goleak.Option) (err error) {
	for range tries {
		if err = goleak.Find(options...); err == nil {
			return nil
		}
	}
	return err
}
