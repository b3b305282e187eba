package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const (
	extraClients = 16               // at most
	warmsUp      = 3 * time.Second  // with the clients of everything
	reloads      = 60               // seconds between two reloads of the policies
	reloadsAgain = 10 * time.Second // at least, in a short run
)

// extras is what -everything turns on. All addresses are free ports of the loopback interface.
type extras struct {
	folder                string
	tls, http, grpc, page string
	reloadEvery           time.Duration
	web                   *http.Client
	envoys                *grpc.ClientConn
	reloaded              atomic.Int64
}

const envoyConfig = "domain: soak\ndescriptors:\n  - key: user\n    rate_limit: {unit: year, requests_per_unit: %d}\n"

func newExtras(length time.Duration) (e *extras, err error) {
	e = &extras{reloadEvery: min(reloads*time.Second, max(reloadsAgain, length/5)),
		web: &http.Client{Timeout: answerIn, Transport: &http.Transport{MaxConnsPerHost: 4}}}
	if e.folder, err = os.MkdirTemp("", "soak"); err != nil {
		return nil, err
	}
	for _, address := range []*string{&e.tls, &e.http, &e.grpc, &e.page} {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return nil, errors.Join(err, os.RemoveAll(e.folder))
		}
		*address = l.Addr().String()
		defer l.Close() // only at the end, so that all ports differ
	}
	if e.envoys, err = grpc.NewClient(e.grpc, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		return nil, err
	}
	err = errors.Join(e.writePolicies(), os.MkdirAll(e.path("envoy"), 0o700),
		os.WriteFile(e.path("envoy/soak.yaml"), fmt.Appendf(nil, envoyConfig, envoyLimit), 0o600), e.makeCertificate())
	return e, err
}

func (e *extras) path(name string) string { return filepath.Join(e.folder, name) }

// writePolicies writes the policies, with another one that is new each time.
func (e *extras) writePolicies() error {
	text, err := os.ReadFile(policiesFile)
	if err != nil {
		return err
	}
	text = fmt.Appendf(text, "  spare-%d:\n    limits: [{throttle: {burst: %[1]d, rate: 10/1s}}]\n", e.reloaded.Add(1))
	err = os.WriteFile(e.path("policies.yaml.new"), text, 0o600)
	return errors.Join(err, os.Rename(e.path("policies.yaml.new"), e.path("policies.yaml")))
}

func (e *extras) makeCertificate() error {
	out, err := exec.Command("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
		"-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", e.path("key.pem"),
		"-out", e.path("cert.pem")).CombinedOutput()
	if err != nil {
		return fmt.Errorf("openssl: %w: %s", err, out)
	}
	return nil
}

// args returns the options of the server.
func (e *extras) args() []string {
	port := func(address string) string {
		_, port, _ := net.SplitHostPort(address)
		return port
	}
	return []string{"--policies", e.path("policies.yaml"), "--dir", e.path("keys"), "--tls-port", port(e.tls),
		"--tls-cert-file", e.path("cert.pem"), "--tls-key-file", e.path("key.pem"), "--tls-auth-clients", "no",
		"--http-port", port(e.http), "--metrics-port", port(e.page), "--page-open", "yes",
		"--grpc-port", port(e.grpc), "--envoy-config", e.path("envoy")}
}

// closeIdle closes the connections over HTTP and gRPC.
func (e *extras) closeIdle() {
	e.web.CloseIdleConnections()
	e.envoys.Close()
	e.envoys, _ = grpc.NewClient(e.grpc, grpc.WithTransportCredentials(insecure.NewCredentials())) // reconnects
}

// checkFolder checks the folder of --dir after the server has ended.
func (e *extras) checkFolder(binary string) error {
	out, err := exec.Command(binary, "check", e.path("keys")).CombinedOutput()
	if err != nil {
		return fmt.Errorf("cellserver check: %w: %s", err, out)
	}
	fmt.Printf("soak: the policies were reloaded %d times; cellserver check: %s", e.reloaded.Load()-1, out)
	return nil
}

func (e *extras) remove() {
	e.envoys.Close()
	os.RemoveAll(e.folder)
}

// extraClients returns the clients of everything.
func (s *soak) extraClients() (list []func(context.Context) error) {
	for i := range 2 {
		list = append(list,
			func(ctx context.Context) error { return s.overTLS(ctx, fmt.Sprint("tls", i)) },
			func(ctx context.Context) error { return s.overHTTP(ctx, fmt.Sprint("http", i)) },
			func(ctx context.Context) error { return s.overGRPC(ctx, fmt.Sprint("grpc", i)) },
			func(ctx context.Context) error { return s.waits(ctx, "waits") },
			func(ctx context.Context) error { return s.holds(ctx, fmt.Sprint("holds", i)) })
	}
	return append(list, s.readsPage, s.followsPage, s.reload, s.waitsForDisk)
}
