package main

import (
	"errors"
	"net"
	"strconv"
	"strings"
	"syscall"
)

// listen opens what the configuration names: a TCP listener for each address of --bind, and the Unix socket.
func listen(c *config) (listeners []net.Listener, err error) {
	defer func() {
		if err != nil {
			for _, l := range listeners {
				l.Close()
			}
		}
	}()
	if c.port != 0 {
		for _, address := range strings.Fields(c.bind) {
			l, err := listenTCP(address, c.port)
			if err != nil {
				return listeners, err
			}
			if l != nil {
				listeners = append(listeners, l)
			}
		}
	}
	if c.unixSocket != "" {
		l, err := net.Listen("unix", c.unixSocket)
		if err != nil {
			return listeners, err
		}
		listeners = append(listeners, l)
	}
	if len(listeners) == 0 {
		return nil, errors.New("there is nothing to listen on: give --port and --bind, or --unixsocket")
	}
	return listeners, nil
}

// listenTCP opens one address. As in redis.conf, * and ::* stand for all of IPv4 and of IPv6, and one with - before it
// may be an address that this machine does not have: then there is no listener and no error.
func listenTCP(address string, port int) (net.Listener, error) {
	host, optional := strings.CutPrefix(address, "-")
	network := "tcp4"
	switch {
	case host == "*":
		host = "0.0.0.0"
	case host == "::*":
		host, network = "::", "tcp6"
	case strings.Contains(host, ":"):
		network = "tcp6"
	}
	l, err := net.Listen(network, net.JoinHostPort(host, strconv.Itoa(port)))
	missing := errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)
	if optional && missing {
		return nil, nil
	}
	return l, err
}

// network is a listener's kind, as in the line that says that it is ready.
func network(l net.Listener) string {
	if l.Addr().Network() == "unix" {
		return "unix"
	}
	return "tcp"
}
