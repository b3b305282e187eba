package redisconf

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"cellserver/internal/option"
)

// maxSize bounds the size of a file, in bytes.
const maxSize = 1 << 20

// File is a configuration file that has been read.
type File struct {
	Path    string   // absolute
	Ignored []string // the directives that were skipped

	options *option.List
	lines   map[string]int // line of the last directive of each option
	loaded  map[string]loaded
}

// loaded is the value to which the file set an option.
type loaded struct {
	written []string // the values in the file, one for each line
	shown   string   // the value as CONFIG GET then showed it
	applied bool     // the command line and the environment have not set the option
}

// Read reads a file and sets the options that it names, except those for which isSet is true, because
// the command line or the environment has set them. Errors name the line, and say what to do.
func Read(path string, options *option.List, isSet func(name string) bool) (*File, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	text, err := readBounded(path)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	lines, err := parse(path, text)
	if err != nil {
		return nil, err
	}
	f := &File{Path: path, options: options, lines: map[string]int{}, loaded: map[string]loaded{}}
	set := map[string]*option.Option{}
	for _, l := range lines {
		if err := f.apply(l, set, isSet); err != nil {
			return nil, fmt.Errorf("%s:%d: %s: %w", path, l.number, l.name, err)
		}
	}
	for name, o := range set {
		f.loaded[name] = loaded{f.loaded[name].written, o.Kind.Show(), true}
	}
	return f, nil
}

// Sets reports whether the file has a directive for an option. A nil File has none.
func (f *File) Sets(name string) bool { return f != nil && f.lines[name] > 0 }

func readBounded(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxSize+1))
	switch {
	case err != nil:
		return "", err
	case len(text) > maxSize:
		return "", fmt.Errorf("%s is longer than %d bytes", path, maxSize)
	}
	return string(text), nil
}

// apply applies a line. It adds to set the option that it has set.
func (f *File) apply(l line, set map[string]*option.Option, isSet func(name string) bool) error {
	if l.name == "" {
		return nil
	}
	if v := judge(l.name, l.args); v.known {
		if v.advice != "" {
			return errors.New(v.advice)
		}
		f.Ignored = append(f.Ignored, l.name)
		return nil
	}
	o := f.lookup(l.name)
	if o == nil {
		return f.unknown(l.name)
	}
	value, err := join(o, l.args)
	if err != nil {
		return err
	}
	entry := f.loaded[o.Name]
	entry.written = append(entry.written, value)
	f.loaded[o.Name] = entry
	f.lines[o.Name] = l.number
	if isSet(o.Name) {
		return o.Kind.Check(value)
	}
	set[o.Name] = o
	if o.Joined {
		value = joinLines(entry.written)
	}
	return o.Kind.Set(value)
}

// joinLines returns the value of an option that several lines set together. As in Redis, an empty value
// removes the values before it.
func joinLines(values []string) string {
	last := -1
	for i, value := range values {
		if value == "" {
			last = i
		}
	}
	return strings.Join(values[last+1:], " ")
}

// lookup returns the option of a directive, or nil if there is none.
func (f *File) lookup(name string) *option.Option {
	if o := f.options.Lookup(name); o != nil && !o.IsFixed() && o.Name != configOption {
		return o
	}
	return nil
}

// configOption is the option that names the file, so that a file cannot contain it.
const configOption = "config"

// unknown returns the error for a directive that is neither an option nor one of Redis's.
func (f *File) unknown(name string) error {
	if f.options.Lookup(name) != nil {
		return errors.New("a file cannot contain it: leave it out")
	}
	if meant := f.options.Nearest(name); meant != "" {
		return fmt.Errorf("unknown directive; did you mean %s?", meant)
	}
	return errors.New("unknown directive; cellserver --help lists the options, which are the directives, without their --")
}

// join joins the arguments of a directive to a value.
func join(o *option.Option, args []string) (string, error) {
	switch {
	case len(args) == 0:
		return "", errors.New("the value is missing")
	case len(args) == 1:
		return args[0], nil
	case !o.Words:
		return "", fmt.Errorf("it has one value, and there are %d: use quotes around a value with spaces", len(args))
	}
	words := make([]string, len(args))
	for i, arg := range args {
		if strings.ContainsAny(arg, " \t\r\n") {
			return "", errors.New("none of its words may contain spaces")
		}
		if words[i] = arg; arg == "" {
			words[i] = `""`
		}
	}
	return strings.Join(words, " "), nil
}

// Locate adds the line to an error that says that an option contradicts another, if the file has set
// the option.
func (f *File) Locate(err error) error {
	var conflict *option.Conflict
	if f != nil && errors.As(err, &conflict) && f.lines[conflict.Name] > 0 {
		return fmt.Errorf("%s:%d: %w", f.Path, f.lines[conflict.Name], err)
	}
	return err
}

// Preview sets the options that a file names, as far as the file can be read. Use it in a program that is about to
// end because of an error in the file, so that it logs the error where and how the file says.
func Preview(path string, options *option.List) {
	text, err := readBounded(path)
	if err != nil {
		return
	}
	lines, _ := parse(path, text)
	for _, l := range lines {
		if o := options.Lookup(l.name); o != nil && len(l.args) == 1 {
			_ = o.Kind.Set(l.args[0]) // an invalid value leaves the default
		}
	}
}
