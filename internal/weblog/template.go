package weblog

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"

	"cellserver/internal/policy"
)

// maxTemplate is the length of the longest template, in bytes.
const maxTemplate = 512

// part is a part of a template: a text, or a field.
type part struct {
	kind policy.PartKind
	text string // of a Literal
	slot int    // of the field; -1 if a {client_ip} has none
}

// template is a text with fields in braces, such as {header.X-Api-Key}:{host}.
type template struct {
	parts     []part
	forwarded int // the slot of X-Forwarded-For; -1 if the log does not have it
	secret    bool
}

// newTemplate reads a template. flag is its option, for errors.
func newTemplate(flag, text string, f *format, b *binding) (t template, err error) {
	t.forwarded = -1
	if len(text) > maxTemplate {
		return t, fmt.Errorf("%s has %d bytes, and at most %d are allowed", flag, len(text), maxTemplate)
	}
	for rest := text; rest != ""; {
		before, after, opened := strings.Cut(rest, "{")
		if before != "" {
			t.parts = append(t.parts, part{kind: policy.Literal, text: before})
		}
		if !opened {
			break
		}
		name, after, closed := strings.Cut(after, "}")
		if !closed {
			return t, fmt.Errorf("%s %s: a { has no }", flag, text)
		}
		p, err := t.field(name, f, b)
		if err != nil {
			return t, fmt.Errorf("%s %s: %w", flag, text, err)
		}
		t.parts, rest = append(t.parts, p), after
	}
	return t, nil
}

// field returns the part for a name in braces.
func (t *template) field(name string, f *format, b *binding) (p part, err error) {
	field := ""
	switch {
	case name == "client_ip":
		p.kind, p.slot = policy.ClientIP, -1
		if forwarded := f.first(forwardedNames); forwarded != "" {
			t.forwarded = b.slot(forwarded)
		}
		if field = f.first(clientNames); field == "" && t.forwarded >= 0 {
			return p, nil
		}
	case name == "host":
		p.kind, field = policy.Host, f.first(hostNames)
	case strings.HasPrefix(name, "header."):
		p.kind, field, t.secret = policy.Header, f.header(name[len("header."):]), true
	case strings.HasPrefix(name, "hash header."):
		p.kind, field = policy.HashHeader, f.header(name[len("hash header."):])
	case f.fields == nil:
		p.kind, field = policy.Header, strings.TrimPrefix(name, "json.")
	default:
		p.kind, field = policy.Header, f.find(name)
	}
	if field == "" {
		return p, fmt.Errorf("there is no {%s} in the log; %s", name, f.describe())
	}
	p.slot = b.slot(field)
	return p, nil
}

// write appends the text of a line. has is false if a field is missing, empty or "-", which stands for an empty one.
func (t *template) write(dst []byte, p *Parser) (text []byte, has bool) {
	has = true
	for i := range t.parts {
		part := &t.parts[i]
		switch part.kind {
		case policy.Literal:
			dst = append(dst, part.text...)
		case policy.ClientIP:
			var found bool
			dst, found = t.writeClient(dst, part, p)
			has = has && found
		default:
			value := p.fields.values[part.slot]
			if isMissing(value) {
				has = false
				continue
			}
			dst = part.append(dst, value)
		}
	}
	return dst, has
}

func (p *part) append(dst, value []byte) []byte {
	switch p.kind {
	case policy.Host:
		h := policy.HTTP{From: []policy.Part{{Kind: policy.Host}}}
		dst, _ = h.Subject(dst, policy.Client{Host: string(value)}, nil)
	case policy.HashHeader:
		sum := sha256.Sum256(value)
		dst = hex.AppendEncode(dst, sum[:])
	default:
		dst = append(dst, value...)
	}
	return dst
}

func isMissing(value []byte) bool { return len(value) == 0 || len(value) == 1 && value[0] == '-' }

// writeClient appends the address of the client, as a server with the same trusted proxies finds it.
func (t *template) writeClient(dst []byte, part *part, p *Parser) (text []byte, has bool) {
	var peer netip.Addr
	if part.slot >= 0 {
		value := addressOf(p.fields.values[part.slot], part.slot == p.withPort)
		if t.forwarded < 0 && isDecimal(value) {
			return append(dst, value...), true
		}
		address, err := netip.ParseAddr(string(value))
		if err != nil { // the name of a host, which some servers log
			return append(dst, value...), !isMissing(value)
		}
		peer = address
	}
	client := policy.Client{Peer: peer, Header: noHeader}
	if t.forwarded >= 0 {
		if value := p.fields.values[t.forwarded]; !isMissing(value) {
			client.Header = func(string) []string { return []string{string(value)} }
		} else if part.slot < 0 {
			return dst, false
		}
	}
	dst, _ = p.clients.Subject(dst, client, p.trusted)
	return dst, true
}

// isDecimal reports whether a text has only digits and dots. It is then used as it is: it is an IPv4 address in
// canonical form, or the name of a host. Most lines have an IPv4 address, and parsing and formatting it would take
// longer than all other fields together.
func isDecimal(value []byte) bool {
	for _, c := range value {
		if !isDigit(c) && c != '.' {
			return false
		}
	}
	return len(value) > 0
}

func noHeader(string) []string { return nil }

// addressOf returns the address of a client. In HAProxy's log, the system log's prefix precedes it, and a port follows.
func addressOf(value []byte, hasPort bool) []byte {
	if !hasPort {
		return value
	}
	text := string(value)
	text = text[strings.LastIndexByte(text, ' ')+1:]
	if colon := strings.LastIndexByte(text, ':'); colon >= 0 {
		text = text[:colon]
	}
	return []byte(strings.Trim(text, "[]"))
}
