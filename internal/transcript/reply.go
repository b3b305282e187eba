package transcript

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// The server under test may send anything. The limits are far above what readable transcripts
// contain, and low enough that a wrong length fails the test without using up the memory of the
// machine.
const (
	maxDepth = 64       // of nested arrays; COMMAND DOCS, the deepest reply of Redis, has less than 20
	maxLine  = 64 << 10 // bytes of a simple string, an error or a number
	maxReply = 8 << 20  // bytes of a reply
)

// ReadReply reads a reply of RESP2 or RESP3 and formats it as a line of a transcript. Two replies
// that differ in a byte have different lines, so that comparing lines compares bytes. Therefore a
// number or length in an unusual form (:+5, $03) is an error.
//
//	+OK  -ERR no        simple string and error; quoted if they would be ambiguous: -"ERR ends in a space "
//	5                   integer
//	"a\r\n"  nil        bulk string, and its null
//	[1, "a"]  nil-array array, and its null
//	_  #t  ,3.14  (123  null, boolean, double and big number of RESP3
//	{"a": 1}  set["a"]  map and set
//	push["a"]           push
//	!"ERR a"  =txt:"a"  bulk error and verbatim string
//	|{"a": 1} 5         a reply that carries attributes
//
// It returns io.EOF at the end of the input, and io.ErrUnexpectedEOF in the middle of a reply.
func ReadReply(r *bufio.Reader) (string, error) {
	if _, err := r.Peek(1); err != nil {
		return "", err
	}
	d := decoder{in: r, budget: maxReply}
	err := d.reply(0)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return "", err
	}
	return d.out.String(), nil
}

// NextReply is ReadReply for replies in memory. It returns the first reply, and the bytes after it.
func NextReply(b []byte) (line string, rest []byte, err error) {
	source := bytes.NewReader(b)
	r := bufio.NewReader(source)
	if line, err = ReadReply(r); err != nil {
		return "", b, err
	}
	return line, b[len(b)-source.Len()-r.Buffered():], nil
}

type decoder struct {
	in     *bufio.Reader
	out    strings.Builder
	budget int // bytes that the reply may still have
}

func (d *decoder) reply(depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("a reply with more than %d levels", maxDepth)
	}
	line, err := d.line()
	if err != nil {
		return err
	}
	if line == "" {
		return errors.New("an empty line instead of a reply")
	}
	switch kind, rest := line[0], line[1:]; kind {
	case '+', '-':
		d.simple(kind, rest, depth > 0)
		return nil
	case ':', ',', '(', '#', '_':
		return d.scalar(kind, rest)
	case '$', '!', '=':
		return d.bulk(kind, rest)
	default:
		return d.aggregate(kind, rest, depth)
	}
}

// simple writes a simple string or an error. It quotes text that would be ambiguous: -1 would be an
// integer, and in an array a comma would end the element.
func (d *decoder) simple(kind byte, text string, nested bool) {
	d.out.WriteByte(kind)
	if text == "" || strings.TrimSpace(text) != text || text[0] == '"' || '0' <= text[0] && text[0] <= '9' ||
		strings.ContainsFunc(text, unprintable) || nested && strings.ContainsAny(text, `,:]}`) {
		d.quote(text)
		return
	}
	d.out.WriteString(text)
}

func (d *decoder) scalar(kind byte, text string) error {
	var valid bool
	switch kind {
	case ':':
		_, valid = canonical(text)
		kind = 0
	case ',':
		_, err := strconv.ParseFloat(text, 64)
		valid = err == nil
	case '(':
		digits := strings.TrimPrefix(text, "-")
		valid = digits != "" && strings.Trim(digits, "0123456789") == ""
	case '#':
		valid = text == "t" || text == "f"
	case '_':
		valid = text == ""
	}
	if !valid {
		return fmt.Errorf("invalid value: %q", text)
	}
	if kind != 0 {
		d.out.WriteByte(kind)
	}
	d.out.WriteString(text)
	return nil
}

func (d *decoder) bulk(kind byte, length string) error {
	n, ok := canonical(length)
	if kind == '$' && n == -1 {
		d.out.WriteString("nil")
		return nil
	}
	if !ok || n < 0 {
		return fmt.Errorf("a bulk of length %q", length)
	}
	body, err := d.body(n)
	if err != nil {
		return err
	}
	switch kind {
	case '!':
		d.out.WriteByte('!')
	case '=':
		if len(body) < 4 || body[3] != ':' || strings.ContainsFunc(body[:3], unprintable) {
			return fmt.Errorf("a verbatim string without its format: %q", body)
		}
		d.out.WriteString("=" + body[:4])
		body = body[4:]
	}
	d.quote(body)
	return nil
}

// aggregates are the replies that consist of replies: how they are written, and the number of
// replies in an element.
var aggregates = map[byte]struct {
	open, shut string
	each       int
}{
	'*': {"[", "]", 1},
	'~': {"set[", "]", 1},
	'>': {"push[", "]", 1},
	'%': {"{", "}", 2},
	'|': {"|{", "} ", 2},
}

func (d *decoder) aggregate(kind byte, length string, depth int) error {
	form, known := aggregates[kind]
	n, ok := canonical(length)
	switch {
	case !known:
		return fmt.Errorf("no reply begins with %q", kind)
	case kind == '*' && n == -1:
		d.out.WriteString("nil-array")
		return nil
	case !ok || n < 0 || n > int64(d.budget):
		return fmt.Errorf("an aggregate of length %q", length)
	}
	d.out.WriteString(form.open)
	for i := range int(n) * form.each {
		switch {
		case i%form.each == 1:
			d.out.WriteString(": ")
		case i > 0:
			d.out.WriteString(", ")
		}
		if err := d.reply(depth + 1); err != nil {
			return err
		}
	}
	d.out.WriteString(form.shut)
	if kind == '|' { // attributes precede the reply that they describe
		return d.reply(depth + 1)
	}
	return nil
}

// line reads a line that ends in CRLF, and returns it without the CRLF.
func (d *decoder) line() (string, error) {
	var line []byte
	for {
		part, err := d.in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxLine:
			return "", fmt.Errorf("a line of more than %d bytes", maxLine)
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil:
			return "", err
		}
		text, ok := strings.CutSuffix(string(line), "\r\n")
		if !ok {
			return "", fmt.Errorf("a line that does not end in CRLF: %q", line)
		}
		return text, d.consume(len(line))
	}
}

// body reads n bytes and the CRLF after them. It allocates memory for the bytes that arrive, not
// for the announced length.
func (d *decoder) body(n int64) (string, error) {
	if n > maxReply {
		return "", fmt.Errorf("a bulk of %d bytes", n)
	}
	if err := d.consume(int(n) + 2); err != nil {
		return "", err
	}
	var b bytes.Buffer
	if _, err := io.CopyN(&b, d.in, n+2); err != nil {
		return "", err
	}
	text, ok := strings.CutSuffix(b.String(), "\r\n")
	if !ok {
		return "", fmt.Errorf("a bulk of %d bytes that does not end in CRLF", n)
	}
	return text, nil
}

// consume counts bytes of the reply towards maxReply.
func (d *decoder) consume(n int) error {
	if d.budget -= n; d.budget < 0 {
		return fmt.Errorf("a reply of more than %d bytes", maxReply)
	}
	return nil
}

// canonical parses an integer in the form that servers write. ok is false for any other form.
func canonical(text string) (n int64, ok bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && strconv.FormatInt(n, 10) == text
}

// quote writes text in double quotes, with the escapes of a command line.
func (d *decoder) quote(text string) {
	d.out.WriteByte('"')
	for _, c := range []byte(text) {
		switch {
		case c == '"' || c == '\\':
			d.out.Write([]byte{'\\', c})
		case c == '\n':
			d.out.WriteString(`\n`)
		case c == '\r':
			d.out.WriteString(`\r`)
		case c == '\t':
			d.out.WriteString(`\t`)
		case unprintable(rune(c)):
			fmt.Fprintf(&d.out, `\x%02x`, c)
		default:
			d.out.WriteByte(c)
		}
	}
	d.out.WriteByte('"')
}

func unprintable(c rune) bool { return c < ' ' || c > '~' }
