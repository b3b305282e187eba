//go:build linux

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"cellserver/bench/load"
	"cellserver/bench/report"
)

// idling is a kind of connection, and the one decision that it asks for before it is idle.
type idling struct {
	what   string
	option string // of the port
	call   string
	tls    bool
}

const overRESP = "CL.THROTTLE k 15 30 60\r\n"

var overHTTP = httpCall(`["CL.THROTTLE", "k", 15, 30, 60]`)

func httpCall(body string) string {
	const head = "POST /v1 HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
	return fmt.Sprintf(head, len(body)) + body
}

var idlings = []idling{
	{what: "RESP", option: "--port", call: overRESP},
	{what: "RESP with TLS", option: "--tls-port", call: overRESP, tls: true},
	{what: "HTTP", option: "--http-port", call: overHTTP},
	{what: "HTTP with TLS", option: "--http-tls-port", call: overHTTP, tls: true},
}

// idleConnections weighs n connections of each kind, each with a server of its own. A tenth of them is
// opened first, so that memory which the first connections need once does not count.
func idleConnections(n int, kinds []idling) measurement {
	return func(ctx context.Context, b *bench) (s report.Scenario, err error) {
		secure, err := selfSigned(b.dir)
		if err != nil {
			return s, err
		}
		for _, kind := range kinds {
			b.progress.say(fmt.Sprintf("%d idle connections, %s", n, kind.what))
			bytes, err := kind.weigh(ctx, b, n, secure)
			if err != nil {
				return s, fmt.Errorf("%s: %w", kind.what, err)
			}
			s.Figures = append(s.Figures, report.Figure{What: kind.what, Value: bytes / 1024, Unit: "KiB"})
		}
		return s, nil
	}
}

// weigh returns the resident bytes of a connection.
func (kind idling) weigh(ctx context.Context, b *bench, n int, secure []string) (bytes float64, err error) {
	port, err := freePort()
	if err != nil {
		return 0, err
	}
	c := b.throttle()
	c.start = append(c.start, secure...)
	if kind.option != "--port" { // which it has
		c.start = append(c.start, kind.option, port)
	}
	e, err := b.enterOne(ctx, c, limitUsual)
	if err != nil {
		return 0, err
	}
	defer b.leave([]*entrant{e})
	target := e.process.tcp
	if kind.option != "--port" {
		target.Address = net.JoinHostPort("127.0.0.1", port)
	}
	var opened connections
	defer func() { opened.close() }()
	var resident [2]int64 // with the first connections, and with all
	for i, more := range []int{n / 10, n} {
		if err := opened.open(kind, target, more); err != nil {
			return 0, err
		}
		if resident[i], err = settle(ctx, e); err != nil {
			return 0, err
		}
	}
	return float64(resident[1]-resident[0]) / float64(n), nil
}

// connections are open connections.
type connections []net.Conn

// open opens n more connections, and asks for a decision on each of them.
func (opened *connections) open(kind idling, target load.Target, n int) error {
	reply := make([]byte, 4096)
	for range n {
		c, err := kind.dial(target)
		if err != nil {
			return err
		}
		*opened = append(*opened, c)
		if err := c.SetDeadline(time.Now().Add(startsWithin)); err != nil {
			return err
		}
		if _, err := c.Write([]byte(kind.call)); err != nil {
			return err
		}
		read, err := c.Read(reply)
		if err != nil {
			return err
		}
		if text := string(reply[:read]); !strings.HasPrefix(text, "*5") && !strings.HasPrefix(text, "HTTP/1.1 200") {
			return fmt.Errorf("the reply is %q", text)
		}
	}
	return nil
}

func (kind idling) dial(target load.Target) (net.Conn, error) {
	if kind.tls {
		return tls.Dial(target.Network, target.Address, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // ours
	}
	return net.Dial(target.Network, target.Address)
}

func (opened connections) close() {
	for _, c := range opened {
		_ = c.Close()
	}
}

// selfSigned writes a certificate and its key to files, and returns the options that name them.
func selfSigned(dir string) (options []string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	options = []string{"--tls-cert-file", certFile, "--tls-key-file", keyFile, "--tls-auth-clients", "no"}
	return options, errors.Join(writePEM(certFile, "CERTIFICATE", cert), writePEM(keyFile, "PRIVATE KEY", private))
}

func writePEM(path, kind string, bytes []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600)
}
