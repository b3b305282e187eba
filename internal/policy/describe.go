package policy

import (
	"strconv"
	"strings"
)

// Description is a field of a policy, as lines for people.
type Description struct {
	Name  string
	Lines []string
}

// Describe returns the fields of a policy: its limits and overrides, and the others that are not the
// default.
func (p *Policy) Describe() []Description {
	limits := Description{Name: "limits"}
	for i := range p.Limits {
		limits.Lines = append(limits.Lines, p.Limits[i].String())
	}
	overrides := Description{Name: "overrides"}
	for _, o := range p.Overrides {
		overrides.Lines = append(overrides.Lines, o.of+": "+o.treatment())
	}
	fields := []Description{limits, overrides}
	add := func(name, value, usual string) {
		if value != usual {
			fields = append(fields, Description{name, []string{value}})
		}
	}
	if len(p.Plans) > 0 {
		fields = append(fields, Description{"plans", p.describePlans()})
	}
	add("plan", p.DefaultPlan, "")
	add("ban", p.Ban.String(), "")
	add("shadow", strconv.FormatBool(p.Shadow), "false")
	add("lease", p.lease, "")
	add("notify", p.Notify.String(), "")
	add("from", p.HTTP.from, "")
	add("without", withoutNames[p.HTTP.Without], withoutNames[0])
	add("errors", errorsNames[p.HTTP.Errors], errorsNames[0])
	add("ipv6_prefix", strconv.Itoa(p.HTTP.IPv6Prefix), strconv.Itoa(defaultPrefix))
	return fields
}

// String returns the rule as in the file; of no ban, nothing.
func (b *Ban) String() string {
	if b == nil {
		return ""
	}
	return b.text
}

// String names the override by its subjects, for messages. A long list of networks is cut.
func (o Override) String() string {
	const most = maxPattern * 4 // a quoted pattern is not cut
	if len(o.of) > most {
		return "override of " + o.of[:most] + "..."
	}
	return "override of " + o.of
}

// treatment describes what the override does.
func (o Override) treatment() string {
	if o.Effect != Limited {
		return effectNames[o.Effect]
	}
	return describeLimits(o.Limits)
}

func describeLimits(limits []Limit) string {
	var lines []string
	for i := range limits {
		lines = append(lines, limits[i].String())
	}
	return strings.Join(lines, "; ")
}
