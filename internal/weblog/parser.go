package weblog

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"cellserver/internal/policy"
)

// Options say how a log is to be read.
type Options struct {
	Format                  string         // a name, or a description as nginx's log_format; empty to guess it
	Subject, Quantity, Time string         // templates; empty: the quantity is 1, and the time the log's usual one
	Trusted                 []netip.Prefix // proxies whose X-Forwarded-For is believed
	IPv6Prefix              int            // bits of an IPv6 address that make a subject
	Zone                    *time.Location // of times without an offset
}

// ErrEmpty is the error of a log without a line.
var ErrEmpty = errors.New("the log is empty")

// Line is what a line says about a request.
type Line struct {
	instant
	Subject  []byte // valid until the next line
	Missing  bool   // a field of the subject is missing or empty
	Status   int    // 0 if the log has none
	Quantity int64
}

// Parser reads lines.
type Parser struct {
	format  *format
	fields  binding
	clients policy.HTTP
	trusted []netip.Prefix
	zone    *time.Location

	at                        template // the time
	duration, status          int      // slots; -1 if there is none
	withPort                  int      // the slot of a field with an address and a port
	subject, quantity         template
	text, instantText, number []byte

	latest     instant // the latest time, parsed, and as the log had it
	latestText []byte
}

// NewParser returns a parser of a log, given its first lines.
func NewParser(o Options, lines [][]byte) (*Parser, error) {
	f, err := newFormat(o.Format, lines)
	if err != nil {
		return nil, err
	}
	p := &Parser{format: f, trusted: o.Trusted, zone: o.Zone, duration: -1, status: -1, withPort: -1}
	p.clients = policy.HTTP{From: []policy.Part{{Kind: policy.ClientIP}}, IPv6Prefix: o.IPv6Prefix}
	b := &p.fields
	if p.subject, err = newTemplate("--subject", o.Subject, f, b); err != nil {
		return nil, err
	}
	if p.quantity, err = newTemplate("--quantity", o.Quantity, f, b); err != nil {
		return nil, err
	}
	if err := p.bindTime(o.Time); err != nil {
		return nil, err
	}
	if name := f.first(statusNames); name != "" {
		p.status = b.slot(name)
	}
	p.withPort = slices.Index(b.names, "client_addr_port")
	b.bind(f.fields)
	return p, nil
}

// bindTime finds the field with the time: the one that the option names, or the usual one of the format.
func (p *Parser) bindTime(option string) (err error) {
	if option != "" {
		p.at, err = newTemplate("--time", option, p.format, &p.fields)
		return err
	}
	names := p.format.instantFields()
	if names == nil {
		return fmt.Errorf("no time was found: name its field with --time; %s", p.format.describe())
	}
	p.at = template{parts: []part{{kind: policy.Header, slot: p.fields.slot(names[0])}}, forwarded: -1}
	if took := durations[names[0]]; took != "" && p.format.find(took) != "" {
		p.duration = p.fields.slot(took)
	}
	return nil
}

// Format returns the name of the format.
func (p *Parser) Format() string { return p.format.name }

// HasStatus reports whether the log has the statuses of responses.
func (p *Parser) HasStatus() bool { return p.status >= 0 }

// HasSecrets reports whether subjects have a header, which may be a secret.
func (p *Parser) HasSecrets() bool { return p.subject.secret }

// Parse reads a line. It returns what is wrong with the line; "" if nothing is wrong.
func (p *Parser) Parse(line []byte, l *Line) (fault string) {
	if !p.format.reader.read(line, &p.fields) {
		return "not in the format " + p.format.name
	}
	if fault = p.parseTime(l); fault != "" {
		return fault
	}
	if p.duration >= 0 && !l.whole {
		if took, ok := seconds(p.fields.values[p.duration]); ok {
			l.unix = max(l.unix-took, earliest)
		}
	}
	l.Status = 0
	if p.status >= 0 {
		if value := p.fields.values[p.status]; len(value) == 3 && !digits(value, &l.Status) {
			l.Status = 0
		}
	}
	var has bool
	if l.Subject, has = p.subject.write(p.text[:0], p); l.Subject != nil {
		p.text = l.Subject
	}
	if l.Missing = !has; len(l.Subject) > MaxLine {
		return fmt.Sprintf("a subject of more than %d bytes", MaxLine)
	}
	return p.parseQuantity(l)
}

// parseTime reads the time. Most lines have the same time as the line before.
func (p *Parser) parseTime(l *Line) (fault string) {
	text, has := p.at.write(p.instantText[:0], p)
	p.instantText = text
	switch {
	case !has:
		return "no time"
	case string(text) == string(p.latestText):
		l.instant = p.latest
		return ""
	}
	var ok bool
	if l.instant, ok = parseInstant(text, p.zone); !ok {
		return fmt.Sprintf("not a time: %.40q", text)
	}
	p.latest, p.latestText = l.instant, append(p.latestText[:0], text...)
	return ""
}

func (p *Parser) parseQuantity(l *Line) (fault string) {
	if l.Quantity = 1; p.quantity.parts == nil {
		return ""
	}
	text, has := p.quantity.write(p.number[:0], p)
	p.number = text
	if !has {
		return "no quantity"
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || n < 0 {
		return fmt.Sprintf("not a quantity: %.40q", text)
	}
	l.Quantity = n
	return ""
}
