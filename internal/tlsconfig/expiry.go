package tlsconfig

import (
	"crypto/x509"
	"encoding/pem"
	"strings"
	"time"
)

// Expiries is when the certificates expire that options name: for each option without its dashes, such as
// tls-cert-file, the first to expire of all that its file holds, or the files of its directory. A chain is
// worth nothing without one of its parts, and an authority may be the one that a peer needs.
type Expiries map[string]time.Time

// add adds a certificate of the file of an option.
func (e Expiries) add(of file, c *x509.Certificate) {
	option := strings.TrimPrefix(of.option, "--")
	if first, has := e[option]; !has || c.NotAfter.Before(first) {
		e[option] = c.NotAfter
	}
}

// appendPEM adds the certificates in a text to a pool, as AppendCertsFromPEM does, which does not say what it has
// found. It reports whether there was one.
func appendPEM(pool *x509.CertPool, text []byte, of file, ends Expiries) (found bool) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" || len(block.Headers) != 0 {
			continue
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			pool.AddCert(c)
			ends.add(of, c)
			found = true
		}
	}
	return found
}
