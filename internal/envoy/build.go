package envoy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/structpb"
)

// The bounds of a configuration.
const (
	MaxBytes = 16 << 20 // of all files together
	maxBelow = 64       // levels of descriptors: a request has no more entries
)

// maxErrors bounds the errors that Parse returns.
const maxErrors = 20

// Parse reads a configuration from files of one domain each. Two files of the same domain are refused, unless
// mergeDomains is set: then they are merged in their order. Parse returns the configuration and warnings about probable
// mistakes; or an error, which joins the first *Error of each file.
//
// before is the configuration that the new one replaces; it may be nil. Each limit continues the counts of the limit at
// the same path there.
func Parse(files []File, mergeDomains bool, before *Config) (*Config, []*Error, error) {
	size := 0
	for i := range files {
		size += len(files[i].Text)
	}
	if size > MaxBytes {
		return nil, nil, fmt.Errorf("the files have %d bytes, and at most %d are allowed", size, MaxBytes)
	}
	b := newBuilder(mergeDomains)
	var wrong []error
	for i := range files {
		if err := b.file(&files[i]); err != nil {
			wrong = append(wrong, err)
		}
	}
	return b.finish(wrong, before)
}

// finish returns the configuration, or an error if something is wrong.
func (b *builder) finish(wrong []error, before *Config) (*Config, []*Error, error) {
	if n := len(wrong); n > maxErrors {
		wrong = append(wrong[:maxErrors:maxErrors], fmt.Errorf("and %d more", n-maxErrors))
	}
	if len(wrong) > 0 {
		return nil, nil, errors.Join(wrong...)
	}
	for _, l := range b.config.domains {
		l.seal()
	}
	b.config.perDomain = map[string]int{}
	for _, domain := range b.of {
		b.config.perDomain[domain]++
	}
	b.config.beginCounts(b.limits, b.of, before)
	b.config.limits = slices.SortedStableFunc(slices.Values(b.limits), func(x, y *Limit) int {
		return strings.Compare(x.Path, y.Path)
	})
	return b.config, b.warnings, nil
}

type builder struct {
	config   *Config
	merge    bool
	from     map[string]string // the file of each domain
	warnings warnings
	domain   string   // of the present file
	keys     []string // of the present descriptor, and of the descriptors above it
	limits   []*Limit // of all files
	of       []string // their domains
}

func newBuilder(mergeDomains bool) *builder {
	return &builder{config: &Config{domains: map[string]*level{}}, merge: mergeDomains, from: map[string]string{}}
}

func (b *builder) file(f *File) error {
	root, at, err := readFile(f)
	if err != nil {
		return err
	}
	b.warnings.documents(f)
	return b.add(&root, at)
}

// add adds a domain.
func (b *builder) add(root *domainValue, at place) error {
	if root.Domain == "" {
		return at.errorf("a configuration must have a domain, which is not empty")
	}
	b.warnings.keys(at, "a file", domainKeys)
	domain := b.config.domains[root.Domain]
	if domain != nil && !b.merge {
		return at.field("domain").errorf("domain %q is in %s already", root.Domain, b.from[root.Domain])
	}
	if domain == nil {
		domain = &level{below: map[string]*level{}}
		b.config.domains[root.Domain], b.from[root.Domain] = domain, at.file
	}
	b.domain, b.keys = root.Domain, b.keys[:0]
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
	b.keys = append(b.keys[:depth-1], v.Key)
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
	added := &level{below: map[string]*level{}, text: text, byValue: v.ByValue}
	b.config.byValue = b.config.byValue || v.ByValue
	if v.Share {
		added.share = text
	}
	metadata, err := readMetadata(v.Metadata)
	if err != nil {
		return at.field("metadata").errorf("metadata: %s", err)
	}
	if added.limit, err = b.limitOf(v, at); err != nil {
		return err
	}
	if added.limit != nil {
		added.limit.Path, added.limit.Metadata = path, metadata
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

// limitOf returns the limit of a descriptor, or a limit that stands for its policy; nil if it has neither.
func (b *builder) limitOf(v *descriptorValue, at place) (*Limit, error) {
	switch {
	case v.Policy == nil && v.Subject != nil:
		return nil, at.field("subject").errorf("subject is that of a policy, and the descriptor has none")
	case v.Policy == nil && v.Limit == nil:
		return nil, nil
	case v.Policy == nil:
		return b.limit(v, at.field("rate_limit"))
	case v.Limit != nil:
		return nil, at.field("policy").errorf("a descriptor has rate_limit or policy, and not both")
	case !isPolicyName.MatchString(*v.Policy):
		return nil, at.field("policy").errorf("%q is not the name of a policy", *v.Policy)
	}
	l := &Limit{Policy: *v.Policy, Shadow: v.Shadow, Quota: v.Quota, detailed: v.Detailed,
		at: place{file: at.file, line: at.field("policy").line}}
	var err error
	if v.Subject != nil {
		l.subject, err = parseSubject(*v.Subject, b.keys)
	} else if l.subject = (subject{{key: v.Key}}); len(b.keys) > 1 {
		err = errNoSubject
	}
	if err != nil {
		return nil, at.field("subject").errorf("%s", err)
	}
	return l, nil
}

func (b *builder) limit(d *descriptorValue, at place) (*Limit, error) {
	v := d.Limit
	b.warnings.keys(at, "rate_limit", limitKeys)
	l := &Limit{Unlimited: v.Unlimited, Shadow: d.Shadow, Quota: d.Quota, Name: v.Name, detailed: d.Detailed}
	l.Unit = UnitNamed(strings.ToLower(v.Unit))
	switch {
	case !utf8.ValidString(v.Name):
		return nil, at.field("name").errorf("a name must be UTF-8, as answers have it")
	case v.Unlimited && l.Unit.IsKnown():
		return nil, at.field("unit").errorf("a limit that is unlimited has no unit")
	case v.Unlimited && v.Unit != "":
		b.warnings.add(at.field("unit"), "unit %q has no effect: the limit is unlimited", v.Unit)
	case !v.Unlimited && !l.Unit.IsKnown():
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

// readMetadata returns metadata as a message; nil if there is none.
func readMetadata(values map[string]any) (*structpb.Struct, error) {
	if len(values) == 0 {
		return nil, nil
	}
	return structpb.NewStruct(withTextKeys(values).(map[string]any))
}

// withTextKeys replaces the mappings in a value by mappings whose keys are strings.
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
