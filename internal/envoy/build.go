package envoy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"
)

// The bounds of a configuration.
const (
	MaxBytes = 16 << 20 // of all files together
	maxBelow = 64       // levels of descriptors: a request has no more entries
)

// maxErrors is the number of errors that Parse returns at most.
const maxErrors = 20

// Parse reads a configuration from files, of which each has one domain. If two have the same, they are refused, or
// merged in their order. It returns all of them, with what is accepted but probably a mistake; or an error, which joins
// the first *Error of each file.
//
// Decisions about limits that were at the same paths in the configuration before, which may be nil, are counted on.
func Parse(files []File, mergeDomains bool, before *Config) (*Config, []*Error, error) {
	size := 0
	for i := range files {
		size += len(files[i].Text)
	}
	if size > MaxBytes {
		return nil, nil, fmt.Errorf("the files have %d bytes, and at most %d are allowed", size, MaxBytes)
	}
	b := builder{config: &Config{domains: map[string]*level{}}, merge: mergeDomains, from: map[string]string{}}
	var wrong []error
	for i := range files {
		if err := b.file(&files[i]); err != nil {
			wrong = append(wrong, err)
		}
	}
	if n := len(wrong); n > maxErrors {
		wrong = append(wrong[:maxErrors:maxErrors], fmt.Errorf("and %d more", n-maxErrors))
	}
	if len(wrong) > 0 {
		return nil, nil, errors.Join(wrong...)
	}
	b.config.beginCounts(b.limits, b.of, before)
	return b.config, b.warnings, nil
}

type builder struct {
	config   *Config
	merge    bool
	from     map[string]string // the file of each domain
	warnings warnings
	domain   string   // of the present file
	limits   []*Limit // of all files
	of       []string // their domains
}

func (b *builder) file(f *File) error {
	root, at, err := readFile(f)
	if err != nil {
		return err
	}
	if root.Domain == "" {
		return at.errorf("a file must have a domain, which is not empty")
	}
	b.warnings.documents(f)
	b.warnings.keys(at, "a file", domainKeys)
	domain := b.config.domains[root.Domain]
	if domain != nil && !b.merge {
		return at.field("domain").errorf("domain %q is in %s already", root.Domain, b.from[root.Domain])
	}
	if domain == nil {
		domain = &level{below: map[string]*level{}}
		b.config.domains[root.Domain], b.from[root.Domain] = domain, f.Name
	}
	b.domain = root.Domain
	return b.descriptors(domain, root.Domain, root.Descriptors, at.field("descriptors"), 1)
}

// descriptors adds descriptors to a level at a depth.
func (b *builder) descriptors(to *level, path string, values []descriptorValue, at place, depth int) error {
	if depth > maxBelow && len(values) > 0 {
		return at.errorf("descriptors are %d levels deep, and requests have at most %d entries", depth, maxBelow)
	}
	for i := range values {
		if err := b.descriptor(to, path, &values[i], at.item(i), depth); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) descriptor(to *level, path string, v *descriptorValue, at place, depth int) error {
	b.warnings.keys(at, "a descriptor", descriptorKeys)
	if v.Key == "" {
		return at.errorf("a descriptor must have a key, which is not empty")
	}
	text := v.Key
	if v.Value != "" {
		text += "_" + v.Value
	}
	path += "." + text
	if to.below[text] != nil {
		return at.errorf("descriptor %s is in the list already", path)
	}
	isPattern := strings.Contains(text, "*")
	if v.Share && !isPattern {
		return at.field("share_threshold").errorf("share_threshold is for values with *, and %q has none", text)
	}
	added := &level{below: map[string]*level{}}
	if v.Share {
		added.share = text
	}
	metadata, err := readMetadata(v.Metadata)
	if err != nil {
		return at.field("metadata").errorf("metadata: %s", err)
	}
	if v.Limit != nil {
		if added.limit, err = b.limit(v, at.field("rate_limit")); err != nil {
			return err
		}
		added.limit.Path, added.limit.Metadata = path, metadata
		b.config.limits++
		b.limits, b.of = append(b.limits, added.limit), append(b.of, b.domain)
	}
	if err := b.descriptors(added, path, v.Descriptors, at.field("descriptors"), depth+1); err != nil {
		return err
	}
	to.below[text] = added
	if isPattern {
		to.patterns.add(text, added)
	}
	return nil
}

func (b *builder) limit(d *descriptorValue, at place) (*Limit, error) {
	v := d.Limit
	b.warnings.keys(at, "rate_limit", limitKeys)
	l := &Limit{Unlimited: v.Unlimited, Shadow: d.Shadow, Quota: d.Quota, Name: v.Name}
	unit := slices.IndexFunc(units[:], func(u unitName) bool { return u.name == strings.ToLower(v.Unit) })
	if unit > 0 {
		l.Unit = Unit(unit)
	}
	switch {
	case v.Unlimited && unit > 0:
		return nil, at.field("unit").errorf("a limit that is unlimited has no unit")
	case v.Unlimited && v.Unit != "":
		b.warnings.add(at.field("unit"), "unit %q has no effect: the limit is unlimited", v.Unit)
	case !v.Unlimited && unit <= 0:
		return nil, at.field("unit").errorf("unit must be second, minute, hour, day, week, month or year, and not %q", v.Unit)
	}
	if v.Requests != nil {
		l.Requests = *v.Requests
	} else if !v.Unlimited {
		b.warnings.add(at, "without requests_per_unit, the limit is 0, and every request is over it")
	}
	for i, replaced := range v.Replaces {
		here := at.field("replaces").item(i)
		b.warnings.keys(here, "replaces", nameKeys)
		switch replaced.Name {
		case "":
			return nil, here.errorf("a limit that is replaced must have a name, which is not empty")
		case v.Name:
			return nil, here.errorf("limit %q may not replace itself", v.Name)
		}
		l.Replaces = append(l.Replaces, replaced.Name)
	}
	return l, nil
}

// readMetadata makes a message of metadata; nil of none.
func readMetadata(values map[string]any) (*structpb.Struct, error) {
	if len(values) == 0 {
		return nil, nil
	}
	return structpb.NewStruct(withTextKeys(values).(map[string]any))
}

// withTextKeys replaces the mappings in a value by mappings whose keys are texts.
func withTextKeys(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, below := range v {
			v[key] = withTextKeys(below)
		}
	case map[any]any:
		made := make(map[string]any, len(v))
		for key, below := range v {
			made[fmt.Sprint(key)] = withTextKeys(below)
		}
		return made
	case []any:
		for i := range v {
			v[i] = withTextKeys(v[i])
		}
	}
	return value
}
