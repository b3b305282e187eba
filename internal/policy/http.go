package policy

import (
	"net/http"
	"strings"
)

// HTTP says how a request to the HTTP port becomes a subject, and what is answered without a decision.
type HTTP struct {
	From       []Part  // the parts of the subject, in order; nil if the request must name it
	Without    Without // what happens if a header of From is missing, or stands twice
	Errors     Errors  // what is answered without a decision, for example because the store is down
	IPv6Prefix int     // bits of an IPv6 address that make the subject, 1 to 128
	from       string  // as in the file
}

// Part is a part of a subject.
type Part struct {
	Kind PartKind
	Text string // the text of a Literal, or the canonical name of the header
}

// PartKind is the kind of a Part.
type PartKind uint8

const (
	Literal    PartKind = iota // a text
	ClientIP                   // {client_ip}: the address of the client
	Host                       // {host}: the host of the request
	Header                     // {header.Name}: the value of a header
	HashHeader                 // {hash header.Name}: its SHA-256, for headers with secrets
)

// Without is what happens without a header that From names.
type Without uint8

const (
	WithoutRefuse Without = iota
	WithoutAllow
	WithoutShare // all such requests have the subject "-"
)

var withoutNames = []string{"refuse", "allow", "share"}

// Errors is what is answered without a decision.
type Errors uint8

const (
	ErrorsAllow Errors = iota
	ErrorsRefuse
)

var errorsNames = []string{"allow", "refuse"}

// maxFrom is the length of the longest template of a subject, in bytes.
const maxFrom = 512

// readHTTP reads the fields of a policy that concern HTTP.
func readHTTP(values map[string]node) (h HTTP, err error) {
	h.IPv6Prefix = defaultPrefix
	from, given := values["from"]
	if given {
		if h.from, err = from.text("from"); err != nil {
			return h, err
		}
		if h.From, err = parseFrom(from, h.from); err != nil {
			return h, err
		}
	}
	if without, given := values["without"]; given {
		if !h.hasHeader() {
			return h, without.errorf("without needs a header in from")
		}
		choice, err := without.choice("without", withoutNames)
		if err != nil {
			return h, err
		}
		h.Without = Without(choice)
	}
	if onError, given := values["errors"]; given {
		choice, err := onError.choice("errors", errorsNames)
		if err != nil {
			return h, err
		}
		h.Errors = Errors(choice)
	}
	if prefix, given := values["ipv6_prefix"]; given {
		if !h.has(ClientIP) {
			return h, prefix.errorf("ipv6_prefix needs {client_ip} in from")
		}
		bits, err := prefix.integer("ipv6_prefix", 1, 128)
		if err != nil {
			return h, err
		}
		h.IPv6Prefix = int(bits)
	}
	return h, nil
}

func (h *HTTP) has(kind PartKind) bool {
	for _, part := range h.From {
		if part.Kind == kind {
			return true
		}
	}
	return false
}

func (h *HTTP) hasHeader() bool { return h.has(Header) || h.has(HashHeader) }

// parseFrom reads a template such as {client_ip}:{header.X-Tenant}.
func parseFrom(n node, template string) (parts []Part, err error) {
	if len(template) > maxFrom {
		return nil, n.errorf("from has %d bytes, and at most %d are allowed", len(template), maxFrom)
	}
	for rest := template; rest != ""; {
		text, after, opened := strings.Cut(rest, "{")
		if strings.Contains(text, "}") {
			return nil, n.errorf("from has a } without a {")
		}
		if text != "" {
			parts = append(parts, Part{Literal, text})
		}
		if !opened {
			break
		}
		name, after, closed := strings.Cut(after, "}")
		if !closed {
			return nil, n.errorf("from has a { without a }")
		}
		part, known := parsePart(name)
		if !known {
			return nil, n.errorf("from may have {client_ip}, {host}, {header.Name} and {hash header.Name}, not {%s}", name)
		}
		parts = append(parts, part)
		rest = after
	}
	return parts, nil
}

// parsePart reads what stands in braces.
func parsePart(name string) (part Part, known bool) {
	switch name {
	case "client_ip":
		return Part{Kind: ClientIP}, true
	case "host":
		return Part{Kind: Host}, true
	}
	part.Kind = Header
	if hashed, ok := strings.CutPrefix(name, "hash "); ok {
		part.Kind, name = HashHeader, hashed
	}
	header, ok := strings.CutPrefix(name, "header.")
	part.Text = http.CanonicalHeaderKey(header)
	return part, ok && isToken(header)
}

// isToken reports whether a text is a token of RFC 9110, as names of headers are.
func isToken(text string) bool {
	for i := range len(text) {
		c := text[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return text != ""
}
