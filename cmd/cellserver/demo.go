package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"cellserver/internal/demo"
)

const demoUsage = `Usage: cellserver demo

Starts a server on free ports of this machine, with sample policies, a page for browsers, and clients
whose calls are limited now and then. It prints the addresses, and ends with Ctrl-C. Options of the
server, its environment variables and its files are not used.
`

// runDemo runs the subcommand demo, until a signal ends the server.
func runDemo(args []string, out io.Writer) error {
	if len(args) > 0 {
		if args[0] == "--help" || args[0] == "-h" {
			fmt.Fprint(out, demoUsage)
			return nil
		}
		return fmt.Errorf("unexpected argument %q; see cellserver demo --help", args[0])
	}
	folder, err := os.MkdirTemp("", "cellserver-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	policies := filepath.Join(folder, "policies.yaml")
	if err := os.WriteFile(policies, []byte(demo.Policies), 0o600); err != nil {
		return err
	}
	var ports demo.Ports
	for _, port := range []*int{&ports.RESP, &ports.Metrics, &ports.HTTP} {
		if *port, err = freePort(); err != nil {
			return err
		}
	}
	c, err := parseConfig([]string{"--bind", "127.0.0.1", "--port", strconv.Itoa(ports.RESP),
		"--metrics-port", strconv.Itoa(ports.Metrics), "--page-open", "yes", "--http-port", strconv.Itoa(ports.HTTP),
		"--policies", policies, "--loglevel", "warning"}, nil)
	if err != nil {
		return err
	}
	return serveDemo(c, ports, out)
}

// serveDemo runs the server and its clients, and ends both when one of them ends.
func serveDemo(c *config, ports demo.Ports, out io.Writer) error {
	ctx, cancel := context.WithCancel(context.Background())
	clients := make(chan error, 1)
	go func() {
		err := demo.Run(ctx, os.Args[0], ports, out)
		clients <- err
		if err != nil {
			_ = syscall.Kill(os.Getpid(), syscall.SIGTERM) // as Ctrl-C would, so that the server stops in order
		}
	}()
	err := c.run()
	cancel()
	return errors.Join(err, <-clients)
}

// freePort returns a TCP port of this machine on which nothing listens.
func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}
