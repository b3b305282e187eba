package policy

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// File is the content of a file. The name appears in errors.
type File struct {
	Name string
	Text []byte
}

// Options are the settings of the server that limit what a policy may contain.
type Options struct {
	MaxLogLimit int // the largest limit of a SlidingLog
}

// noPolicies is the error of a file without the key policies. An empty file may be one that was not
// written yet.
const noPolicies = `no policies; a file that is to have none says "policies: {}"`

// maxErrors is the number of errors that Parse returns at most.
const maxErrors = 20

// Parse reads policies from files. It returns either all of them or an error, which joins the
// first error of each policy, as an *Error with file and line.
func Parse(files []File, o Options) (*Set, error) {
	size := 0
	for _, f := range files {
		size += len(f.Text)
	}
	switch {
	case len(files) == 0:
		return nil, errors.New("no file with policies")
	case size > MaxBytes:
		return nil, fmt.Errorf("the files with policies have %d bytes, and at most %d are allowed", size, MaxBytes)
	}
	p := parser{options: o, policies: map[string]*Policy{}}
	for _, f := range files {
		if err := p.file(f); err != nil {
			p.errors = append(p.errors, err)
		}
	}
	if n := len(p.errors); n > maxErrors {
		p.errors = append(p.errors[:maxErrors:maxErrors], fmt.Errorf("and %d more", n-maxErrors))
	}
	if len(p.errors) > 0 {
		return nil, errors.Join(p.errors...)
	}
	s := &Set{policies: p.policies}
	for name := range p.policies {
		s.names = append(s.names, name)
	}
	slices.Sort(s.names)
	for _, name := range s.names {
		s.slots[slotOf(name)] = s.policies[name]
	}
	return s, nil
}

type parser struct {
	options  Options
	policies map[string]*Policy
	errors   []error
}

// file adds the policies of a file. It returns the error of the file as a whole.
func (p *parser) file(f File) error {
	root, err := readDocument(f.Name, f.Text)
	if err != nil {
		return err
	}
	if root.is("!!null") {
		return root.errorf(noPolicies)
	}
	values, err := root.fields("a file", "policies")
	if err != nil {
		return err
	}
	all, given := values["policies"]
	if !given || all.is("!!null") {
		return root.errorf(noPolicies)
	}
	names, policies, err := all.entries("policies")
	if err != nil {
		return err
	}
	if len(p.policies)+len(names) > MaxPolicies {
		return all.errorf("more than %d policies", MaxPolicies)
	}
	for _, name := range names {
		if err := p.add(name, policies[name.Value]); err != nil {
			p.errors = append(p.errors, err)
		}
	}
	return nil
}

// validName is the syntax of the names of policies and limits.
var validName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

func checkName(n node, name string) error {
	if !validName.MatchString(name) {
		return n.errorf("%q is not a name: 1 to %d of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit",
			name, MaxNameBytes)
	}
	return nil
}

// add adds the policy with a name.
func (p *parser) add(name, value node) error {
	if err := checkName(name, name.Value); err != nil {
		return err
	}
	if other := p.policies[name.Value]; other != nil {
		return name.errorf("policy %s is at %s already", name.Value, other.at)
	}
	policy, err := p.policy(value)
	if err != nil {
		return err
	}
	policy.Name, policy.head, policy.at = name.Value, name.Value+":{", name.at()
	p.policies[policy.Name] = policy
	return nil
}

func (p *parser) policy(n node) (*Policy, error) {
	values, err := n.fields("a policy", "limits", "plans", "plan", "overrides", "ban", "shadow", "lease", "notify",
		"from", "without", "errors", "ipv6_prefix")
	if err != nil {
		return nil, err
	}
	policy := &Policy{}
	if limits, given := values["limits"]; given {
		if policy.Limits, err = p.limits(limits); err != nil {
			return nil, err
		}
	}
	if err := p.plans(policy, values); err != nil {
		return nil, err
	}
	if policy.Limits == nil {
		return nil, n.errorf("a policy must have limits")
	}
	policy.mostLimits = len(policy.Limits)
	if overrides, given := values["overrides"]; given {
		if err := p.overrides(policy, overrides); err != nil {
			return nil, err
		}
	}
	if ban, given := values["ban"]; given {
		if policy.Ban, err = readBan(ban); err != nil {
			return nil, err
		}
	}
	if shadow, given := values["shadow"]; given {
		if policy.Shadow, err = shadow.boolean("shadow"); err != nil {
			return nil, err
		}
	}
	if lease, given := values["lease"]; given {
		if err := policy.readLease(lease); err != nil {
			return nil, err
		}
	}
	if notify, given := values["notify"]; given {
		if err := policy.readNotify(notify, values); err != nil {
			return nil, err
		}
	}
	policy.simple = len(policy.Overrides) == 0 && len(policy.Limits) == 1
	policy.HTTP, err = readHTTP(values)
	return policy, err
}

// overrides adds overrides to a policy.
func (p *parser) overrides(policy *Policy, n node) error {
	items, err := n.items("overrides", MaxOverrides)
	if err != nil {
		return err
	}
	for _, item := range items {
		o, err := p.override(item)
		if err != nil {
			return err
		}
		if i := indexOverride(policy.Overrides, o); i >= 0 {
			return item.errorf("an %s is in the list already; the first that matches decides", o)
		}
		policy.Overrides = append(policy.Overrides, o)
		policy.mostLimits = max(policy.mostLimits, len(o.Limits))
		fixed, perByte := o.mostSteps()
		policy.fixedSteps, policy.byteSteps = policy.fixedSteps+fixed, policy.byteSteps+perByte
		policy.cidr = policy.cidr || o.Networks != nil
	}
	return nil
}

// override reads {subject or cidr, and limits, unlimited or blocked}.
func (p *parser) override(n node) (o Override, err error) {
	values, err := n.fields("an override", "subject", "cidr", "limits", "unlimited", "blocked")
	if err != nil {
		return o, err
	}
	subject, bySubject := values["subject"]
	networks, byNetwork := values["cidr"]
	if bySubject == byNetwork {
		return o, n.errorf("an override must have subject or cidr, and not both")
	}
	if len(values) != 2 {
		return o, n.errorf("an override must have one of limits, unlimited and blocked")
	}
	switch {
	case byNetwork:
		o.Networks, err = readNetworks(networks)
		o.of = strings.Trim(fmt.Sprint(o.Networks), "[]")
	default:
		o.Pattern, err = subject.text("subject")
		o.of = strconv.Quote(o.Pattern)
		if len(o.Pattern) > maxPattern {
			err = subject.errorf("subject has %d bytes, and at most %d are allowed", len(o.Pattern), maxPattern)
		}
	}
	if err != nil {
		return o, err
	}
	if limits, given := values["limits"]; given {
		o.Limits, err = p.limits(limits)
		return o, err
	}
	o.Effect = Unlimited
	if _, given := values["blocked"]; given {
		o.Effect = Blocked
	}
	word := effectNames[o.Effect]
	if yes, err := values[word].boolean(word); err != nil || !yes {
		return o, values[word].errorf("%s must be true, or not be there", word)
	}
	return o, nil
}
