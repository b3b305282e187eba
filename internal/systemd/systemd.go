// Package systemd tells systemd that a service has started, needs more time, works, or stops. It speaks
// the protocol of sd_notify(3): datagrams of lines to a Unix socket.
package systemd

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// Supervisor is the connection to systemd. The methods of a nil Supervisor do nothing, so a program that runs
// without systemd calls them all the same.
type Supervisor struct {
	conn     *net.UnixConn
	watchdog time.Duration
}

// Open returns the Supervisor that the environment describes; nil without NOTIFY_SOCKET. pid is the number of
// this process.
func Open(environment func(name string) string, pid int) (*Supervisor, error) {
	path := environment("NOTIFY_SOCKET")
	if path == "" {
		return nil, nil
	}
	// A path that begins with @ is an abstract socket, for package net as for systemd.
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return nil, fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	s := &Supervisor{conn: conn}
	owner := environment("WATCHDOG_PID")
	microseconds, err := strconv.ParseInt(environment("WATCHDOG_USEC"), 10, 64)
	if err == nil && microseconds > 0 && microseconds < 1<<50 && (owner == "" || owner == strconv.Itoa(pid)) {
		s.watchdog = time.Duration(microseconds) * time.Microsecond
	}
	return s, nil
}

// Watchdog returns how long systemd waits for a call of Beat before it ends the process; 0 if it waits for none.
func (s *Supervisor) Watchdog() time.Duration {
	if s == nil {
		return 0
	}
	return s.watchdog
}

// Ready says that the service has started.
func (s *Supervisor) Ready(status string) { s.send("READY=1", "STATUS="+status) }

// Extend asks for more time to start or to stop, counted from now.
func (s *Supervisor) Extend(by time.Duration, status string) {
	s.send("EXTEND_TIMEOUT_USEC="+strconv.FormatInt(by.Microseconds(), 10), "STATUS="+status)
}

// Stopping says that the service stops, and how long that may take.
func (s *Supervisor) Stopping(within time.Duration) {
	s.send("STOPPING=1", "EXTEND_TIMEOUT_USEC="+strconv.FormatInt(within.Microseconds(), 10), "STATUS=stopping")
}

// Beat says that the service works.
func (s *Supervisor) Beat() { s.send("WATCHDOG=1") }

// send sends the lines as one message. It ignores errors: if systemd's socket is gone, nobody needs to be told.
func (s *Supervisor) send(lines ...string) {
	if s == nil {
		return
	}
	for i := range lines {
		lines[i] = strings.ReplaceAll(lines[i], "\n", " ")
	}
	_, _ = s.conn.Write([]byte(strings.Join(lines, "\n")))
}
