package hostile

import (
	"fmt"
	"net"
	"testing"

	"cellserver/internal/racetest"
)

// A thousand clients wait for one key, and others wait with CL.ALL for keys of their own. Some of them
// die, and keys are flushed. The server keeps the order of arrival and forgets no client. It serves other
// clients, which use the global key that the calls of CL.ALL need too. Like TestOtherClientsAreServed, the
// test prints the longest turn of a loop and does not judge it.
func TestWaitingClients(t *testing.T) {
	const longest = "longest_loop_callback_usec"
	waiting, tenants, calls := 1000, 100, 1000
	if racetest.Enabled {
		waiting, tenants, calls = 200, 20, 100
	}
	server := startLogging(t, "--measure-pauses", "loops")
	w := watch(t, server)
	boss := connect(t, server)
	ask := func(reply string, words ...string) {
		write(t, boss, Command(words...))
		reads(t, boss, reply)
	}
	ask("*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:3000\r\n", "CL.THROTTLE", "queue", "0", "1", "3000")
	var queue []net.Conn
	for i := range waiting {
		conn := connect(t, server)
		write(t, conn, Command("CL.THROTTLE", "queue", "0", "1", "3000", "1", "WAIT", "3600000"))
		queue = append(queue, conn)
		for try := 0; try < 1000 && w.number("blocked_clients") <= i; try++ {
		}
		w.becomes("blocked_clients", i+1)
	}
	for i := range tenants {
		key := fmt.Sprint("tenant:", i)
		ask("*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:3000\r\n", "CL.THROTTLE", key, "0", "1", "3000")
		write(t, connect(t, server), Command("CL.ALL", "2", "THROTTLE", "global", "99999", "1", "1000", "1",
			"THROTTLE", key, "0", "1", "3000", "1", "WAIT", "3600000"))
	}
	w.becomes("blocked_clients", waiting+tenants)

	h := measuredClient(t, server, "global", calls)
	t.Logf("while %d clients wait: p50 %s p99 %s, %s %s us", waiting+tenants, h[len(h)/2], h[len(h)*99/100], longest,
		w.field(longest))
	for i := 0; i < waiting; i += 10 {
		queue[i].Close()
	}
	w.becomes("blocked_clients", waiting*9/10+tenants)
	for i, conn := range queue {
		if i%10 == 0 {
			continue
		}
		ask(":1\r\n", "DEL", "queue")
		reads(t, conn, "*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:3000\r\n")
	}
	w.becomes("blocked_clients", tenants)
	ask("+OK\r\n", "FLUSHALL")
	w.becomes("blocked_clients", 0)
	t.Logf("at the end: %s %s us", longest, w.field(longest))
}
