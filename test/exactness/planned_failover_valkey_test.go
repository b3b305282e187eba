//go:build valkey && valkey9

package exactness

import (
	"testing"

	"cellserver/test/peer"
)

// With COORDINATED, the Sentinels of Valkey 9 replace a primary, and nothing is forgotten.
func TestCoordinatedFailoverLosesNothing(t *testing.T) {
	for range amount(1, 20) {
		s := peer.StartSentinels(t, peer.StartStore, nil, quickly...)
		admitted, stop := takeSteadily(t, s.URL())
		event := switchEvent(t, s, admitted, "coordinated")

		event()
		takenSince(t, admitted, 100)
		stop()
		requireNothingLost(t, admitted, "redis://"+s.Replica.Addr)
	}
}
