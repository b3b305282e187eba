package policy

import (
	"fmt"
	"slices"
	"strconv"

	"cellserver/internal/limit"
)

// maxDiff is the number of lines that Diff returns at most.
const maxDiff = 1000

// Diff returns what changes for clients when one Set takes the place of another, as lines for the log. Each
// line begins with the name of a policy. A limit whose key gets another name counts from 0, and its line says
// so. All other limits keep their counts, even if their numbers change.
func Diff(before, after *Set) []string {
	names := slices.Concat(before.names, after.names)
	slices.Sort(names)
	d := differences{}
	for _, name := range slices.Compact(names) {
		d.policy = name
		d.policies(before.policies[name], after.policies[name])
	}
	if more := len(d.lines) - maxDiff; more > 0 {
		d.lines = append(d.lines[:maxDiff:maxDiff], fmt.Sprintf("and %d changes more", more))
	}
	return d.lines
}

// differences collects the lines of a Diff.
type differences struct {
	policy string
	of     string // what the limits belong to, and a colon: an override, or nothing
	lines  []string
}

func (d *differences) addf(format string, args ...any) {
	d.lines = append(d.lines, d.policy+": "+d.of+fmt.Sprintf(format, args...))
}

// changed adds a line for a setting, if it has another value.
func (d *differences) changed(setting, before, after string) {
	switch {
	case before == after:
	case before == "":
		d.addf("%s: new: %s", setting, after)
	case after == "":
		d.addf("%s: removed", setting)
	default:
		d.addf("%s: %s -> %s", setting, before, after)
	}
}

// policies compares two policies with one name. Either may be nil.
func (d *differences) policies(before, after *Policy) {
	switch {
	case before == nil:
		d.addf("new")
		return
	case after == nil:
		d.addf("removed")
		return
	}
	d.limits(before.Limits, after.Limits)
	d.overrides(before.Overrides, after.Overrides)
	d.plans(before, after)
	d.changed("ban", before.Ban.String(), after.Ban.String())
	d.changed("shadow", strconv.FormatBool(before.Shadow), strconv.FormatBool(after.Shadow))
	d.changed("lease", before.lease, after.lease)
	d.changed("notify", before.Notify.String(), after.Notify.String())
	d.changed("from", quoted(before.HTTP.from), quoted(after.HTTP.from))
	d.changed("without", withoutNames[before.HTTP.Without], withoutNames[after.HTTP.Without])
	d.changed("errors", errorsNames[before.HTTP.Errors], errorsNames[after.HTTP.Errors])
	d.changed("ipv6_prefix", strconv.Itoa(before.HTTP.IPv6Prefix), strconv.Itoa(after.HTTP.IPv6Prefix))
}

func quoted(text string) string {
	if text == "" {
		return ""
	}
	return strconv.Quote(text)
}

// limits compares the limits of a policy or an override. Limits with the same label have the same key, and keep
// their counts. A removed limit and a new limit are shown as one limit that has changed if no others have the
// same name and kind, or the same name.
func (d *differences) limits(before, after []Limit) {
	for _, l := range before {
		if i := slices.IndexFunc(after, hasLabel(l.label)); i >= 0 {
			d.changed(l.label, l.text, after[i].text)
		}
	}
	removed, added := missing(before, after), missing(after, before)
	if len(removed) == 0 && len(added) == 0 && !slices.EqualFunc(before, after, sameLabel) {
		d.addf("limits: in another order")
	}
	removed, added = d.replaced(removed, added, func(a, b Limit) bool { return a.Name == b.Name && a.Kind == b.Kind })
	removed, added = d.replaced(removed, added, func(a, b Limit) bool { return a.Name == b.Name })
	for _, l := range removed {
		d.addf("%s: removed", l.label)
	}
	for _, l := range added {
		d.addf("%s: new: %s", l.label, l.text)
	}
}

func hasLabel(label string) func(Limit) bool { return func(l Limit) bool { return l.label == label } }

func sameLabel(a, b Limit) bool { return a.label == b.label }

// missing returns the limits whose labels no limit of others has.
func missing(limits, others []Limit) (result []Limit) {
	for _, l := range limits {
		if !slices.ContainsFunc(others, hasLabel(l.label)) {
			result = append(result, l)
		}
	}
	return result
}

// replaced adds lines for the removed limits that have a new limit in their place, and returns the
// others.
func (d *differences) replaced(removed, added []Limit, same func(a, b Limit) bool) (r, a []Limit) {
	for _, l := range removed {
		like := func(other Limit) bool { return same(l, other) }
		first := slices.IndexFunc(added, like)
		if first < 0 || slices.ContainsFunc(added[first+1:], like) || count(removed, like) > 1 {
			r = append(r, l)
			continue
		}
		d.addf("%s: begins anew", replacement(&l, &added[first]))
		added = slices.Delete(slices.Clone(added), first, first+1)
	}
	return r, added
}

func count(limits []Limit, like func(Limit) bool) (n int) {
	for _, l := range limits {
		if like(l) {
			n++
		}
	}
	return n
}

// replacement describes a limit that takes the place of another. Of two quotas, it shows only the difference,
// as in "quota day -> month".
func replacement(before, after *Limit) string {
	from, to := before.kindAndUnit(), after.kindAndUnit()
	if before.Kind == limit.Quota && after.Kind == limit.Quota {
		from, to = "quota "+from[len("quota-"):], to[len("quota-"):]
	}
	if before.Name != "" {
		from = before.Name + ": " + from
	}
	return from + " -> " + to
}

// kindAndUnit returns the label without the name.
func (l *Limit) kindAndUnit() string {
	if l.Name == "" {
		return l.label
	}
	return l.label[len(l.Name)+1:]
}

// overrides compares each override with the override for the same subjects.
func (d *differences) overrides(before, after []Override) {
	for i := range before {
		if indexOverride(after, before[i]) < 0 {
			d.addf("%v: removed", before[i])
		}
	}
	last, ordered := -1, true
	for _, o := range after {
		i := indexOverride(before, o)
		if i < 0 {
			d.addf("%v: new: %s", o, o.treatment())
			continue
		}
		ordered = ordered && i > last
		last = i
		d.override(before[i], o)
	}
	if !ordered {
		d.addf("overrides: in another order")
	}
}

func indexOverride(all []Override, o Override) int {
	return slices.IndexFunc(all, func(other Override) bool { return other.of == o.of })
}

func (d *differences) override(before, after Override) {
	if before.Effect != Limited || after.Effect != Limited {
		d.changed(before.String(), before.treatment(), after.treatment())
		return
	}
	d.of = before.String() + ": "
	d.limits(before.Limits, after.Limits)
	d.of = ""
}
