package tlsconfig

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
)

// parseVersions parses tls-protocols.
func parseVersions(text string) (least, most uint16, err error) {
	for _, word := range strings.Fields(text) {
		version := uint16(0)
		switch strings.ToLower(word) {
		case "tlsv1.2":
			version = tls.VersionTLS12
		case "tlsv1.3":
			version = tls.VersionTLS13
		case "tlsv1", "tlsv1.1":
			return 0, 0, fmt.Errorf("tls-protocols: %s is insecure and not supported: use TLSv1.2 and TLSv1.3", word)
		default:
			return 0, 0, fmt.Errorf("tls-protocols: unknown protocol %.64q: use TLSv1.2 and TLSv1.3", word)
		}
		if least == 0 || version < least {
			least = version
		}
		most = max(most, version)
	}
	if least == 0 {
		return tls.VersionTLS12, tls.VersionTLS13, nil
	}
	return least, most, nil
}

// openSSLNames are OpenSSL's names of the ciphers for TLS 1.2 that crypto/tls supports and
// considers secure. Their order does not matter: crypto/tls chooses the cipher that is fastest on
// the processors of both sides.
var openSSLNames = []struct {
	name string
	id   uint16
}{
	{"ECDHE-ECDSA-AES128-GCM-SHA256", tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256},
	{"ECDHE-RSA-AES128-GCM-SHA256", tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256},
	{"ECDHE-ECDSA-AES256-GCM-SHA384", tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384},
	{"ECDHE-RSA-AES256-GCM-SHA384", tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384},
	{"ECDHE-ECDSA-CHACHA20-POLY1305", tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256},
	{"ECDHE-RSA-CHACHA20-POLY1305", tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256},
	{"ECDHE-ECDSA-AES128-SHA", tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA},
	{"ECDHE-RSA-AES128-SHA", tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA},
	{"ECDHE-ECDSA-AES256-SHA", tls.TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA},
	{"ECDHE-RSA-AES256-SHA", tls.TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA},
}

// anyCipher lists OpenSSL's words for all ciphers, and absentCiphers its words for kinds of ciphers
// that crypto/tls does not offer.
var (
	anyCipher     = []string{"DEFAULT", "HIGH", "ALL"}
	absentCiphers = []string{"aNULL", "eNULL", "NULL", "MEDIUM", "LOW", "EXPORT", "EXP", "DES", "3DES", "RC4", "RC2",
		"IDEA",
		"SEED",
		"MD5", "PSK", "SRP", "DSS", "ADH", "AECDH", "CAMELLIA", "ARIA", "kRSA", "SSLv2", "SSLv3"}
)

// parseCiphers parses tls-ciphers, a list in OpenSSL's format. The words that name ciphers or
// groups of them are supported. nil stands for all ciphers that crypto/tls considers secure.
func parseCiphers(text string) (ids []uint16, err error) {
	if text == "" {
		return nil, nil
	}
	words := strings.FieldsFunc(text, func(r rune) bool { return r == ':' || r == ',' || r == ' ' })
	for _, word := range words {
		name, without := word, false
		if word[0] == '!' || word[0] == '-' {
			name, without = word[1:], true
		}
		found := ciphersNamed(name)
		switch {
		case without && (len(found) > 0 || slices.Contains(absentCiphers, name)):
			ids = slices.DeleteFunc(ids, func(id uint16) bool { return slices.Contains(found, id) })
		case without || len(found) == 0:
			return nil, fmt.Errorf("tls-ciphers: unknown cipher %.64q; supported are %s", name,
				strings.Join(cipherNames(), " "))
		default:
			ids = append(ids, slices.DeleteFunc(found, func(id uint16) bool { return slices.Contains(ids, id) })...)
		}
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("tls-ciphers: %.64q selects no cipher", text)
	}
	return ids, nil
}

// ciphersNamed returns the ciphers that a word stands for.
func ciphersNamed(word string) (ids []uint16) {
	all := slices.Contains(anyCipher, word)
	for _, c := range openSSLNames {
		if all || c.name == word || tls.CipherSuiteName(c.id) == word {
			ids = append(ids, c.id)
		}
	}
	return ids
}

func cipherNames() (names []string) {
	for _, c := range openSSLNames {
		names = append(names, c.name)
	}
	return names
}

// checkCipherSuites checks tls-ciphersuites. crypto/tls has three cipher suites for TLS 1.3 and
// always offers all of them, so a list without one of them is an error.
func checkCipherSuites(text string) error {
	if text == "" {
		return nil
	}
	have := []string{"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
	words := strings.Split(text, ":")
	for _, word := range words {
		if !slices.Contains(have, word) {
			return fmt.Errorf("tls-ciphersuites: unknown cipher suite %.64q; supported are %s", word, strings.Join(have, " "))
		}
	}
	for _, name := range have {
		if !slices.Contains(words, name) {
			return fmt.Errorf("tls-ciphersuites: %s cannot be disabled: with TLS 1.3, all three are always offered", name)
		}
	}
	return nil
}
