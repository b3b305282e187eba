package exactness

import (
	"testing"

	"cellserver/test/peer"
)

// Four servers on one store together admit exactly what the limits allow. Their clients take, give back and ask, in
// bursts: mostly on one key, and sometimes on one of hundreds of other keys.
func TestServersAdmitTogether(t *testing.T) {
	t.Parallel()
	store := peer.StartStore(t)
	l := startLoad(t, "redis://"+store.Addr, limits(amount(300, 5000)), "--store-timeout", "30000")
	l.progress(hot, amount(2000, 50_000))
	check(t, l.finish(), nil)
}
