package peer

import (
	"strings"
	"testing"
)

// CheckStore runs cellserver check-store again and again, as long as a server has not answered within the second
// that it is given, in which a busy machine may not even connect. It returns the output and the error.
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
