package decide

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/command"
)

// Fingerprints are kept in stores that servers of several versions share. If a new version made another fingerprint
// for the same call, a client that repeats a call during an upgrade would take twice.
func TestFingerprintsStayTheSame(t *testing.T) {
	for _, c := range []struct {
		row, call, want string
		waitAt          int
	}{
		{"cl.throttle", "CL.THROTTLE k 15 30 60 1 ID a", "e77e33686d27bca366692a1148b56417", 0},
		{"cl.throttle", "CL.THROTTLE k 15 30 60 1 WAIT 100 ID a", "e77e33686d27bca366692a1148b56417", 7},
		{"cl.fixed", "CL.FIXED k 10 60 2 UPTO LEAVE 3 ID a", "3bea284ec3b93ec50511b02e5daebb82", 0},
		{"cl.take", "CL.TAKE user:1 api 1 ID a", "0eb026ff967ad90fdd610e344abd3390", 0},
		{"cl.all", "CL.ALL 2 FIXED k 10 60 1 TAKE user:1 api 1 ID a", "4a7d22b40812cac0b73747808959a75e", 0},
		{"cl.all", "CL.ALL 1 FIXED " + strings.Repeat("k", 300) + " 10 60 1 ID a", "9d2f2d6a94291144b9974b475de6e184", 0},
	} {
		words := [][]byte{}
		for _, word := range strings.Fields(c.call) {
			words = append(words, []byte(word))
		}
		got := fingerprint(&command.Call{Row: &command.Command{Name: c.row}, Words: words}, c.waitAt)
		require.Equal(t, c.want, hex.EncodeToString(got[:]), c.call)
	}
}
