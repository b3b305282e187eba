package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Error says where a file is wrong, and why.
type Error struct {
	File   string
	Line   int // from 1 on; 0 if the error is not at a line
	Reason string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.File, e.Reason)
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Reason)
}

// position is a line of a file.
type position struct {
	file string
	line int
}

func (p position) String() string { return fmt.Sprintf("%s:%d", p.file, p.line) }

// maxReason is the length of the longest reason of an Error, which may quote a file.
const maxReason = 500

// errorf makes an Error. What comes from a file is quoted, so that an error is always one line.
func (p position) errorf(format string, args ...any) error {
	reason := fmt.Sprintf(format, args...)
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "") + "..."
	}
	return &Error{File: p.file, Line: p.line, Reason: reason}
}

// node is a part of a YAML document. The methods accept only a strict and small part of YAML, in which a
// text has one meaning: no aliases, anchors or tags, no key twice, and the types as they are written.
type node struct {
	*yaml.Node
	file string
}

func (n node) at() position { return position{n.file, n.Line} }

func (n node) errorf(format string, args ...any) error { return n.at().errorf(format, args...) }

// readDocument parses a file with one document.
func readDocument(name string, text []byte) (node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document, more yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return node{}, &Error{File: name, Reason: noPolicies}
	case err != nil:
		return node{}, syntaxError(name, text, err)
	}
	root := node{document.Content[0], name}
	switch err := decoder.Decode(&more); {
	case err == nil:
		return node{}, node{&more, name}.errorf("a second document; a file has one")
	case !errors.Is(err, io.EOF):
		return node{}, syntaxError(name, text, err)
	}
	return root, nil
}

// The parts of the parser's errors.
var (
	syntaxLine    = regexp.MustCompile(`^line ([0-9]+): `) // not there if it is the first
	unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)
)

func syntaxError(file string, text []byte, err error) error {
	reason := strings.TrimPrefix(err.Error(), "yaml: ")
	at := position{file, 1}
	if m := syntaxLine.FindStringSubmatch(reason); m != nil {
		at.line, _ = strconv.Atoi(m[1])
		reason = reason[len(m[0]):]
	}
	if m := unknownAnchor.FindStringSubmatch(reason); m != nil { // has no line
		before, _, _ := bytes.Cut(text, []byte("*"+m[1]))
		at.line += bytes.Count(before, []byte("\n"))
		return at.errorf("aliases (*%s) are not allowed", m[1])
	}
	return at.errorf("not YAML: %s", strings.ReplaceAll(reason, "\n", " "))
}

// check refuses what is not allowed in any part of a file, such as an alias.
func (n node) check() error {
	switch {
	case n.Kind == yaml.AliasNode:
		return n.errorf("aliases (*%s) are not allowed", n.Value)
	case n.Anchor != "":
		return n.errorf("anchors (&%s) are not allowed", n.Anchor)
	case n.Style&yaml.TaggedStyle != 0:
		return n.errorf("tags (%s) are not allowed", n.Tag)
	}
	return nil
}

// is reports whether a node is a scalar of a type, such as !!str.
func (n node) is(tag string) bool { return n.Kind == yaml.ScalarNode && n.Tag == tag }

// entries returns the keys of a mapping, and the values by their keys.
func (n node) entries(what string) (keys []node, values map[string]node, err error) {
	if err := n.check(); err != nil {
		return nil, nil, err
	}
	if n.Kind != yaml.MappingNode {
		return nil, nil, n.errorf("%s must be a mapping, as in {key: value}", what)
	}
	values = make(map[string]node, len(n.Content)/2)
	for i := 0; i < len(n.Content); i += 2 {
		key, value := node{n.Content[i], n.file}, node{n.Content[i+1], n.file}
		if err := key.check(); err != nil {
			return nil, nil, err
		}
		if key.Kind != yaml.ScalarNode {
			return nil, nil, key.errorf("a key of %s must be a word", what)
		}
		if first, twice := values[key.Value]; twice {
			return nil, nil, key.errorf("%s has %q twice; the first is at line %d", what, key.Value, first.Line)
		}
		keys = append(keys, key)
		values[key.Value] = value
	}
	return keys, values, nil
}

// fields returns the values of a mapping whose keys are known, by their keys.
func (n node) fields(what string, known ...string) (map[string]node, error) {
	keys, values, err := n.entries(what)
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		if !slices.Contains(known, key.Value) {
			return nil, key.errorf("%s has no %q; it may have %s", what, key.Value, strings.Join(known, ", "))
		}
	}
	return values, nil
}

// required is fields for a mapping that must have all its keys.
func (n node) required(what string, known ...string) (map[string]node, error) {
	values, err := n.fields(what, known...)
	if err != nil {
		return nil, err
	}
	for _, key := range known {
		if _, given := values[key]; !given {
			return nil, n.errorf("%s must have %s", what, key)
		}
	}
	return values, nil
}

// items returns the items of a list. There must be at least one.
func (n node) items(what string, most int) (items []node, err error) {
	if err := n.check(); err != nil {
		return nil, err
	}
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		return nil, n.errorf("%s must be a list of one at least, as in [a, b]", what)
	}
	if len(n.Content) > most {
		return nil, n.errorf("%s has %d items, and at most %d are allowed", what, len(n.Content), most)
	}
	for _, item := range n.Content {
		items = append(items, node{item, n.file})
	}
	return items, nil
}

// text returns a string, which is not empty.
func (n node) text(what string) (string, error) {
	if err := n.check(); err != nil {
		return "", err
	}
	switch {
	case n.is("!!str") && n.Value != "":
		return n.Value, nil
	case n.Kind == yaml.ScalarNode && n.Value != "":
		return "", n.errorf("%s must be a text: write %q in quotes", what, n.Value)
	}
	return "", n.errorf("%s must be a text", what)
}

// integer returns an integer in decimal digits.
func (n node) integer(what string, lo, hi int64) (int64, error) {
	if err := n.check(); err != nil {
		return 0, err
	}
	value, err := strconv.ParseInt(n.Value, 10, 64)
	if err != nil || !n.is("!!int") || strconv.FormatInt(value, 10) != n.Value || value < lo || value > hi {
		return 0, n.errorf("%s must be an integer between %d and %d", what, lo, hi)
	}
	return value, nil
}

// boolean returns true or false.
func (n node) boolean(what string) (bool, error) {
	if err := n.check(); err != nil {
		return false, err
	}
	if !n.is("!!bool") || n.Value != "true" && n.Value != "false" {
		return false, n.errorf("%s must be true or false", what)
	}
	return n.Value == "true", nil
}

// choice returns one of some words.
func (n node) choice(what string, words []string) (int, error) {
	if err := n.check(); err != nil {
		return 0, err
	}
	for i, word := range words {
		if n.is("!!str") && n.Value == word {
			return i, nil
		}
	}
	return 0, n.errorf("%s must be one of %s", what, strings.Join(words, ", "))
}
