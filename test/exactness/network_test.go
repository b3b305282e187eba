package exactness

import (
	"syscall"
	"testing"
	"time"

	"cellserver/test/peer"
	"cellserver/test/proxy"
)

// Connections to the store are delayed, cut before and after it has carried out what was sent, torn and
// stalled; the store is stopped and continued; and one of the servers is killed. The servers admit
// exactly what the limits allow, except for calls whose outcome is unknown.
func TestExactWhileTheNetworkFails(t *testing.T) {
	t.Parallel()
	store := peer.StartStore(t)
	front := proxy.New(t, store.Addr)
	l := startLoad(t, "redis://"+front.Addr, limits(amount(100, 1000)), "--store-timeout", "1000")
	l.progress(hot, 100)
	for range amount(1, 10) {
		front.SetDelay(2 * time.Millisecond)
		l.progress(hot, 100)
		front.SetDelay(0)
		for _, fault := range []proxy.Fault{proxy.LoseRequest, proxy.LoseReply, proxy.TearReply} {
			for _, i := range []int{hot, hot, throttle, fixed, slidingLog} {
				strike(t, front, fault, l.limits[i].key)
				l.progress(hot, 20)
			}
		}
		front.Cut()
		l.progress(hot, 100)
		resume := front.Stall()
		l.failures(100)
		resume()
		l.progress(hot, 100)
		store.Signal(syscall.SIGSTOP)
		l.failures(100)
		store.Signal(syscall.SIGCONT)
		l.progress(hot, 100)
	}
	l.servers[0].Signal(syscall.SIGKILL)
	l.servers[0].Wait()
	l.progress(hot, 100)
	check(t, l.finish(), nil)
}

// strike waits until a fault has happened to a request for a key.
func strike(t *testing.T, front *proxy.Proxy, fault proxy.Fault, key string) {
	t.Helper()
	struck := front.Arm(fault, key, 0)
	peer.Until(t, "the fault", func() bool {
		select {
		case <-struck:
			return true
		default:
			return false
		}
	})
}
