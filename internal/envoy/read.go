package envoy

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v2"
)

// File is the content of a file. The name appears in errors.
type File struct {
	Name string
	Text []byte
}

// Error says where a file is wrong, and why.
type Error struct {
	File   string
	Line   int // from 1 on; 0 if it is not known
	Reason string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.File, e.Reason)
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Reason)
}

// The values of a file. They are read by version 2 of the YAML package, as in the original: later versions differ in
// what some words mean, such as yes, 010 or a number in place of a text.
type (
	domainValue struct {
		Domain      string
		Descriptors []descriptorValue
	}
	descriptorValue struct {
		Key, Value  string
		Limit       *limitValue `yaml:"rate_limit"`
		Descriptors []descriptorValue
		Shadow      bool `yaml:"shadow_mode"`
		Quota       bool `yaml:"quota_mode"`
		Detailed    bool `yaml:"detailed_metric"`
		ByValue     bool `yaml:"value_to_metric"`
		Share       bool `yaml:"share_threshold"`
		Metadata    map[string]any
		Policy      *string // the original does not have this field and the next
		Subject     *string
	}
	limitValue struct {
		Requests  *uint32 `yaml:"requests_per_unit"`
		Unit      string
		Unlimited bool
		Name      string
		Replaces  []nameValue
	}
	nameValue struct{ Name string }
)

// readFile reads the values of a file.
func readFile(f *File) (root domainValue, at place, err error) {
	var all map[any]any
	at = f.place()
	if err := decode(f, &all); err != nil {
		return root, at, err
	}
	if err := checkKeys(all, at); err != nil {
		return root, at, err
	}
	return root, at, decode(f, &root)
}

func decode(f *File, to any) error {
	err := yaml.Unmarshal(f.Text, to)
	if err == nil {
		return nil
	}
	if wrong := (*yaml.TypeError)(nil); errors.As(err, &wrong) {
		err = errors.New(wrong.Errors[0])
	}
	reason := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 1
	if m := lineOfError.FindStringSubmatch(reason); m != nil {
		line, _ = strconv.Atoi(m[1])
		reason = reason[len(m[0]):]
	}
	reason = strings.NewReplacer("map[interface {}]interface {}", "mapping", "envoy.", "", "\n", " ").Replace(reason)
	return place{file: f.Name, line: line}.errorf("%s", reason)
}

var lineOfError = regexp.MustCompile(`^line ([0-9]+): `)

// The keys of each part of a file.
var (
	domainKeys     = []string{"domain", "descriptors"}
	descriptorKeys = []string{"key", "value", "rate_limit", "descriptors", "shadow_mode", "quota_mode",
		"detailed_metric",
		"value_to_metric", "share_threshold", "metadata", "policy", "subject"}
	limitKeys = []string{"requests_per_unit", "unit", "unlimited", "name", "replaces"}
	nameKeys  = []string{"name"}

	allKeys = slices.Concat(domainKeys, descriptorKeys, limitKeys)
)

// checkKeys refuses unknown keys, and values of types that no key has, except in metadata. As in the original, a known
// key in a wrong place is not refused; lines.go warns of it.
func checkKeys(values map[any]any, at place) error {
	for _, key := range sortedKeys(values) {
		name, isText := key.(string)
		if !isText {
			return at.field(fmt.Sprint(key)).errorf("%v is not a key: it is not a text", key)
		}
		here := at.field(name)
		if !slices.Contains(allKeys, name) {
			return here.errorf("unknown key %q", name)
		}
		if name == "metadata" {
			continue
		}
		switch value := values[key].(type) {
		case []any:
			for i, item := range value {
				below, isMap := item.(map[any]any)
				if !isMap {
					return here.item(i).errorf("an item of %s must be a mapping, as in {key: value}", name)
				}
				if err := checkKeys(below, here.item(i)); err != nil {
					return err
				}
			}
		case map[any]any:
			if err := checkKeys(value, here); err != nil {
				return err
			}
		case string, int, bool, nil:
		default:
			return here.errorf("%s may not be %v: write it in quotes, or as an integer", name, value)
		}
	}
	return nil
}

// sortedKeys returns the keys of a mapping in a fixed order, so that errors are always the same.
func sortedKeys(values map[any]any) []any {
	keys := make([]any, 0, len(values))
	for key := range values {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return keys
}
