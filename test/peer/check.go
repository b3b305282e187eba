package peer

import (
	"strings"
	"testing"
)

// CheckStore runs cellserver check-store, and repeats it while a server does not answer within the second that
// check-store waits: on a busy machine, even a connection may take longer. It returns the output and the error.
func CheckStore(t testing.TB, run func() (output []byte, err error)) (report string, err error) {
	t.Helper()
	Until(t, "servers answer check-store in time", func() bool {
		var output []byte
		output, err = run()
		report = string(output)
		return !strings.Contains(report, "deadline exceeded") && !strings.Contains(report, "i/o timeout")
	})
	return report, err
}
