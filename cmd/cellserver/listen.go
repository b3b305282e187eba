package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// listen opens the listeners: one for each address of --bind, for the plain port and for the TLS
// port, and one for the Unix socket.
func listen(n *network, t *tlsOptions) (listeners []net.Listener, err error) {
	defer func() {
		if err != nil {
			closeAll(listeners)
		}
	}()
	for _, p := range []struct {
		option  string
		port    int
		secured bool
	}{{"port", n.port, false}, {"tls-port", t.port, true}} {
		if p.port == 0 {
			continue
		}
		bound, err := listenAll(n, p.option, p.port)
		for _, l := range bound {
			if p.secured {
				l = tlsListener{l}
			}
			listeners = append(listeners, l)
		}
		if err != nil {
			return listeners, err
		}
	}
	if n.unixSocket != "" {
		l, err := listenUnix("unixsocket", n.unixSocket, n.unixSocketPerm)
		if err != nil {
			return listeners, err
		}
		listeners = append(listeners, l)
	}
	return listeners, nil
}

var errNoListeners = errors.New("no listeners: set --port or --tls-port and --bind, or --unixsocket")

func closeAll(listeners []net.Listener) {
	for _, l := range listeners {
		l.Close()
	}
}

// listenAll listens on a port of each address of --bind. Errors name the option that has the port.
func listenAll(n *network, option string, port int) (listeners []net.Listener, err error) {
	addresses := strings.Fields(n.bind)
	for i, address := range addresses {
		if slices.Contains(addresses[:i], address) {
			continue
		}
		l, err := listenTCP(n, option, address, port)
		if err != nil {
			return listeners, err
		}
		if l != nil {
			listeners = append(listeners, l)
		}
	}
	return listeners, nil
}

// listenTCP listens on one address. As in redis.conf, * and ::* stand for all addresses of IPv4 and
// of IPv6. If an address begins with - and this machine does not have it, there is no listener and
// no error.
func listenTCP(n *network, option, address string, port int) (net.Listener, error) {
	host, optional := strings.CutPrefix(address, "-")
	host = strings.Trim(host, "[]")
	family := "tcp4"
	switch {
	case host == "*":
		host = "0.0.0.0"
	case host == "::*":
		host, family = "::", "tcp6"
	case strings.Contains(host, ":"):
		family = "tcp6"
	}
	n.currentKeepAlive.Store(int64(n.keepAlive))
	full := net.JoinHostPort(host, strconv.Itoa(port))
	config := net.ListenConfig{KeepAliveConfig: keepAlive(inSeconds(n.keepAlive)), KeepAlive: -1}
	l, err := config.Listen(context.Background(), family, full)
	switch {
	case err == nil:
		tcp := l.(*net.TCPListener)
		return keepAliveListener{tcp, n.keepAlive, n.currentKeepAlive}, setBacklog(tcp, n.backlog)
	case optional && (errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)):
		return nil, nil
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("cannot listen on %s: address already in use, perhaps by another address of --bind, another cellserver or a redis-server; --%s chooses another", full, option)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("cannot listen on %s: no permission; ports below 1024 are for root, --%s chooses another",
			full, option)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("cannot listen on %s: this machine does not have that address; write --bind -%s if it may be missing", full, host)
	}
	return nil, fmt.Errorf("cannot listen on %s: %w", full, err)
}

// keepAlive returns the configuration with Redis's intervals: the first probe is sent after idle,
// further ones after a third of it each, and the connection is closed when three probes are
// unanswered. An idle of 0 means no probes.
func keepAlive(idle time.Duration) net.KeepAliveConfig {
	if idle == 0 {
		return net.KeepAliveConfig{}
	}
	return net.KeepAliveConfig{Enable: true, Idle: idle, Interval: max(idle/3, time.Second), Count: 3}
}

// setBacklog sets the number of connections that may wait to be accepted. The standard library has
// set it to the largest number that the system allows.
func setBacklog(l *net.TCPListener, backlog int) error {
	raw, err := l.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = unix.Listen(int(fd), backlog) })
	return errors.Join(err, failed)
}

// listenUnix listens on a Unix socket. It replaces the socket of a server that did not shut down.
// It does not replace a socket on which another process listens, nor a file that is not a socket.
// Errors name the option that has the path.
func listenUnix(option, path, perm string) (net.Listener, error) {
	l, err := net.Listen("unix", path)
	if errors.Is(err, syscall.EADDRINUSE) {
		if err := removeStale(path); err != nil {
			return nil, fmt.Errorf("cannot listen on %s: %w; --%s chooses another path", path, err, option)
		}
		l, err = net.Listen("unix", path)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w; --%s chooses another path", path, errors.Unwrap(err), option)
	}
	if perm == "" {
		return l, nil
	}
	mode, _ := strconv.ParseUint(perm, 8, 32) // the option has checked the syntax
	if err := os.Chmod(path, fs.FileMode(mode)); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// removeStale removes a Unix socket on which no process listens.
func removeStale(path string) error {
	if info, err := os.Lstat(path); err != nil || info.Mode().Type() != fs.ModeSocket {
		return errors.New("the file is not a socket")
	}
	if conn, err := net.Dial("unix", path); err == nil {
		conn.Close()
		return errors.New("another process listens on it, perhaps another cellserver")
	} else if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	return os.Remove(path)
}

// listenerKind returns the kind of a listener: tcp, tls or unix.
func listenerKind(l net.Listener) string {
	if _, secured := l.(tlsListener); secured {
		return "tls"
	}
	if l.Addr().Network() == "unix" {
		return "unix"
	}
	return "tcp"
}

// keepAliveListener sets the keep-alive time of accepted connections, if tcp-keepalive has changed
// since the listener was opened.
type keepAliveListener struct {
	*net.TCPListener
	initial int // seconds: the keep-alive time when the listener was opened
	current *atomic.Int64
}

func (l keepAliveListener) Accept() (net.Conn, error) {
	conn, err := l.AcceptTCP()
	if err != nil {
		return nil, err
	}
	if now := int(l.current.Load()); now != l.initial {
		_ = conn.SetKeepAliveConfig(keepAlive(inSeconds(now))) // an error means that the connection has ended
	}
	return conn, nil
}
