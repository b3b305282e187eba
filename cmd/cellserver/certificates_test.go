package main

import (
	"crypto/x509"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/monitor"
	"cellserver/test/certs"
)

// TestCertificates: each option with a file of certificates that is used has a time. Those of the server are of the
// configuration in use; those of connections to other programs are what the files have, looked at once a second.
func TestCertificates(t *testing.T) {
	a, now := certs.New(t), int64(5)
	own, end := a.Issue(t, "own"), time.Date(2020, 2, 3, 4, 5, 6, 0, time.UTC)
	c := newConfig()
	assert.Nil(t, c.certificates(func() int64 { return now }), "without TLS there is no certificate")

	c.tls.port, c.tls.files.CertFile, c.tls.files.KeyFile, c.tls.files.CACertFile = 1, own.Cert, own.Key, a.File
	c.tls.files.CACertDir = a.Dir
	c.store.tls.Cert, c.store.tls.Key, c.store.tls.CACert = own.Cert, own.Key, a.File
	c.xds.Address, c.xds.TLS = "h:1", "yes"
	c.xds.Files.Cert, c.xds.Files.Key, c.xds.Files.CACert = own.Cert, own.Key, a.File
	require.NoError(t, c.tls.load())
	got := c.certificates(func() int64 { return now })
	uses := got.expiries()
	names := make([]string, 0, len(uses))
	for name, at := range uses {
		names = append(names, name)
		assert.True(t, at.After(time.Now()), name)
	}
	assert.ElementsMatch(t, monitor.CertificateUses, names)

	ended := a.Issue(t, "ended", func(c *x509.Certificate) { c.NotAfter = end })
	require.NoError(t, os.Rename(ended.Cert, own.Cert))
	require.NoError(t, os.WriteFile(own.Key, []byte("half"), 0o600))
	now += rereadEvery
	assert.Equal(t, uses, got.expiries(), "a key that does not belong to it: the one from before stays")
	require.NoError(t, os.Rename(ended.Key, own.Key))
	now += rereadEvery - 1
	assert.Equal(t, uses, got.expiries(), "files are read once a second")
	now++
	of := func(end time.Time) (list []string) {
		for name, at := range got.expiries() {
			if at.Equal(end) {
				list = append(list, name)
			}
		}
		slices.Sort(list)
		return list
	}
	assert.Equal(t, []string{"envoy-xds-tls-cert-file", "store-tls-cert-file"}, of(end), "the server has not loaded it")
	require.NoError(t, c.tls.load())
	assert.Contains(t, of(end), "tls-cert-file")

	c.xds.TLS = "no"
	assert.NotContains(t, c.certificates(func() int64 { return now }).expiries(), "envoy-xds-tls-cert-file")
}
