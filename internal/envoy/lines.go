package envoy

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// place is a part of a file, as version 3 of the YAML package reads it. Version 2, which reads the values, does not
// tell their lines.
type place struct {
	file string
	line int
	node *yaml.Node // nil if it is not known
}

// place returns the place of the file's document.
func (f *File) place() place {
	var document yaml.Node
	if err := yaml.Unmarshal(f.Text, &document); err != nil || len(document.Content) == 0 {
		return place{file: f.Name, line: 1}
	}
	return place{f.Name, 1, nil}.at(document.Content[0])
}

// at returns the place of a node, or of what the node is an alias of.
func (p place) at(node *yaml.Node) place {
	line := node.Line
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	return place{p.file, line, node}
}

// field returns the place of a value of a mapping; p if the value comes from elsewhere, as with <<.
func (p place) field(name string) place {
	if p.node != nil && p.node.Kind == yaml.MappingNode {
		for i := len(p.node.Content) - 2; i >= 0; i -= 2 { // the last of several counts
			if key := p.node.Content[i]; key.Value == name {
				found := p.at(p.node.Content[i+1])
				found.line = key.Line
				return found
			}
		}
	}
	return place{file: p.file, line: p.line}
}

// item returns the place of an item of a list.
func (p place) item(i int) place {
	if p.node != nil && p.node.Kind == yaml.SequenceNode && i < len(p.node.Content) {
		return p.at(p.node.Content[i])
	}
	return place{file: p.file, line: p.line}
}

// maxReason is the length of the longest reason of an Error, which may quote a file.
const maxReason = 500

func (p place) errorf(format string, args ...any) *Error {
	reason := strings.Map(printable, fmt.Sprintf(format, args...))
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "") + "..."
	}
	return &Error{p.file, p.line, reason}
}

// printable replaces characters that would break a line.
func printable(r rune) rune {
	if r < ' ' || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x2029 {
		return '?'
	}
	return r
}

// maxWarnings bounds the warnings about a configuration.
const maxWarnings = 100

// warnings collects what the original accepts, so that it is accepted here too, but what is probably a mistake.
type warnings []*Error

func (w *warnings) add(p place, format string, args ...any) {
	if len(*w) < maxWarnings {
		*w = append(*w, p.errorf(format, args...))
	}
}

// keys warns of keys that have no effect where they stand, and of keys that stand there twice.
func (w *warnings) keys(p place, what string, known []string) {
	if p.node == nil || p.node.Kind != yaml.MappingNode {
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(p.node.Content); i += 2 {
		key := p.node.Content[i]
		if first, twice := seen[key.Value]; twice {
			w.add(p.at(key), "%q is here twice, and the last one counts; the first is at line %d", key.Value, first)
		}
		seen[key.Value] = key.Line
		if key.Value != "<<" && !slices.Contains(known, key.Value) {
			w.add(p.at(key), "%q has no effect in %s", key.Value, what)
		}
	}
}

// documents warns of further documents in a file.
func (w *warnings) documents(f *File) {
	decoder := yaml.NewDecoder(bytes.NewReader(f.Text))
	var first, second yaml.Node
	if decoder.Decode(&first) == nil && decoder.Decode(&second) == nil {
		w.add(place{file: f.Name, line: second.Line}, "a second document has no effect: the first one counts")
	}
}
