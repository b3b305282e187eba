//go:build !linux

package main

import (
	"io"
	"net"
)

// order forwards what clients send. Outside of Linux, the order between clients is not kept.
type order struct{}

func newOrder() (*order, error) { return &order{}, nil }

// forward forwards what a client sends. The caller keeps the client open until end is called.
func (o *order) forward(client *net.TCPConn, to io.Writer, end func()) error {
	go func() {
		_, _ = io.Copy(to, client) // ends when either side does
		end()
	}()
	return nil
}
