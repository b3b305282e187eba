package policy

import "strconv"

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
	add("ban", p.Ban.String(), "")
	add("shadow", strconv.FormatBool(p.Shadow), "false")
	add("from", p.HTTP.from, "")
	add("without", withoutNames[p.HTTP.Without], withoutNames[0])
	add("errors", errorsNames[p.HTTP.Errors], errorsNames[0])
	add("ipv6_prefix", strconv.Itoa(p.HTTP.IPv6Prefix), strconv.Itoa(defaultPrefix))
	return fields
}
