package policy

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"cellserver/internal/calendar"
	"cellserver/internal/gcra"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/standing"
	"cellserver/internal/window"
)

// kindWords are the names of the kinds of limits.
var kindWords = func() (words []string) {
	for _, kind := range limit.OfPolicies {
		words = append(words, kind.Word())
	}
	return words
}()

// limits reads the limits of a policy or an override.
func (p *parser) limits(n node) ([]Limit, error) {
	items, err := n.items("limits", MaxLimits)
	if err != nil {
		return nil, err
	}
	all := make([]Limit, 0, len(items))
	for _, item := range items {
		l, err := p.limit(item)
		if err != nil {
			return nil, err
		}
		for _, other := range all {
			switch {
			case l.Kind == other.Kind && (l.Name == "" || other.Name == ""):
				return nil, item.errorf("two limits of kind %[1]s need names, as in {name: daily, %[1]s: {...}}", l.Kind.Word())
			case l.Name == other.Name && l.Name != "":
				return nil, item.errorf("two limits are named %s", l.Name)
			}
		}
		all = append(all, l)
	}
	return all, nil
}

// limit reads {throttle: {burst: 20, rate: 100/1m}}, or another kind, with or without a name.
func (p *parser) limit(n node) (l Limit, err error) {
	values, err := n.fields("a limit", append([]string{"name"}, kindWords...)...)
	if err != nil {
		return l, err
	}
	if name, given := values["name"]; given {
		if l.Name, err = name.text("name"); err == nil {
			err = checkName(name, l.Name)
		}
		if err != nil {
			return l, err
		}
		delete(values, "name")
	}
	if len(values) != 1 {
		return l, n.errorf("a limit must have one of %s", strings.Join(kindWords, ", "))
	}
	for kind, numbers := range values {
		l.Kind = limit.OfPolicies[slices.Index(kindWords, kind)]
		l.label = kind
		switch l.Kind {
		case limit.Throttle:
			err = l.readThrottle(numbers)
		case limit.Quota:
			err = l.readQuota(numbers)
		default:
			err = l.readWindow(numbers, p.options)
		}
	}
	if l.Name != "" {
		l.label = l.Name + "." + l.label
	}
	l.tail = "}:" + l.label
	return l, err
}

// readThrottle reads {burst: 20, rate: 100/1m}.
func (l *Limit) readThrottle(n node) error {
	values, err := n.required("throttle", "burst", "rate")
	if err != nil {
		return err
	}
	burst, err := values["burst"].integer("burst", 0, math.MaxInt64)
	if err != nil {
		return err
	}
	if err := values["rate"].check(); err != nil {
		return err
	}
	count, period, ok := parseRate(values["rate"].Value)
	if !ok {
		return values["rate"].errorf("rate must be a count and a period, such as 100/1m")
	}
	l.Throttle, err = gcra.NewLimit(burst-1, count, period)
	switch {
	case errors.Is(err, gcra.ErrRate):
		return values["rate"].errorf("rate is more than 1000000000 per second")
	case err != nil:
		return n.errorf("burst and rate span more than 146 years")
	}
	l.rate = rate{count, period}
	l.text = fmt.Sprintf("burst %d, rate %d/%s", burst, count, formatPeriod(period))
	return nil
}

// parseRate reads a count and a period, such as 100/1m.
func parseRate(text string) (count int64, period quota.Period, ok bool) {
	digits, unit, _ := strings.Cut(text, "/")
	count, err := strconv.ParseInt(digits, 10, 64)
	period, ok = quota.ParsePeriod([]byte(unit))
	return count, period, ok && err == nil && count > 0 && strconv.FormatInt(count, 10) == digits
}

// readWindow reads {limit: 50, period: 1s}.
func (l *Limit) readWindow(n node, o Options) error {
	values, err := n.required(l.Kind.Word(), "limit", "period")
	if err != nil {
		return err
	}
	size, err := values["limit"].integer("limit", 0, math.MaxInt64)
	if err != nil {
		return err
	}
	period, err := values["period"].period("period")
	if err != nil {
		return err
	}
	if err := l.SetWindow(l.Kind, size, period, o.MaxLogLimit); err != nil {
		// Only the limit of a log can be wrong here, because the period has been checked.
		return values["limit"].errorf("limit must be between 0 and %d (max-log-limit)", o.MaxLogLimit)
	}
	l.text = fmt.Sprintf("limit %d, period %s", size, formatPeriod(period))
	return nil
}

// readQuota reads {limit: 10000, per: day@Europe/Berlin}.
func (l *Limit) readQuota(n node) error {
	values, err := n.required("quota", "limit", "per")
	if err != nil {
		return err
	}
	size, err := values["limit"].integer("limit", 0, math.MaxInt64)
	if err != nil {
		return err
	}
	if l.Window, err = window.NewCalendarLimit(size); err != nil {
		return values["limit"].errorf("%v", err)
	}
	l.text = fmt.Sprintf("limit %d", size)
	return l.readCycle(values["per"])
}

// readCycle reads a unit, with or without a time zone, or a period, and adds it to the label.
func (l *Limit) readCycle(n node) error {
	if err := n.check(); err != nil {
		return err
	}
	name, zone, inZone := strings.Cut(n.Value, "@")
	unit, isUnit := calendar.ParseUnit([]byte(name))
	if !isUnit || name != strings.ToLower(name) {
		period, err := n.nanoseconds("per")
		if err != nil {
			return n.errorf("per must be hour, day, week, month or year, with or without a time zone, such as "+
				"day@Europe/Berlin, or a period of at most %ds, such as 90s", maxPeriodSeconds)
		}
		l.Cycle = calendar.Every(time.Duration(period))
		l.label += "-" + formatNanoseconds(period)
		return nil
	}
	if !inZone {
		zone = "UTC"
	}
	var known bool
	if l.Cycle, known = calendar.In(unit, []byte(zone)); !known {
		return n.errorf("%q is not an IANA time zone, such as Europe/Berlin", zone)
	}
	if l.label += "-" + name; zone != "UTC" {
		l.label += "@" + zone
	}
	return nil
}

// maxLease is the longest lease in nanoseconds, as for --store-lease.
const maxLease = int64(time.Second)

// readLease reads how long a store may decide by tokens taken ahead: a period, or none.
func (p *Policy) readLease(n node) error {
	if n.Value == "none" && n.check() == nil {
		p.Ahead, p.lease = limit.NotAhead, "none"
		return nil
	}
	ns, err := n.nanoseconds("lease")
	switch {
	case err != nil || ns > maxLease:
		return n.errorf("lease must be a period of 1ms to 1s with a unit, such as 100ms, or none")
	case len(p.Plans) > 0:
		return n.errorf("lease of a policy with plans must be none: the plan of a subject is read with each call")
	case !p.mayTakeAhead():
		return n.errorf("lease needs one throttle, fixed or quota of at least %d, without other limits beside it, "+
			"in the policy or in an override", limit.LeastAhead)
	}
	p.Ahead, p.lease = ns, formatNanoseconds(ns)
	return nil
}

// mayTakeAhead reports whether some subjects have a single limit, and its tokens can be taken ahead.
func (p *Policy) mayTakeAhead() bool {
	alone := func(limits []Limit) bool { return len(limits) == 1 && limits[0].MayTakeAhead() }
	return alone(p.Limits) || slices.ContainsFunc(p.Overrides, func(o Override) bool { return alone(o.Limits) })
}

// maxPeriodSeconds is the longest period of a window or a ban: 31 years.
const maxPeriodSeconds = 1_000_000_000

// period returns a period with a unit, such as 90s.
func (n node) period(what string) (quota.Period, error) {
	if err := n.check(); err != nil {
		return 0, err
	}
	period, ok := quota.ParsePeriod([]byte(n.Value))
	if ok {
		_, ok = period.Nanoseconds(maxPeriodSeconds)
	}
	if !ok {
		return 0, n.errorf("%s must be a period of 1ms to %ds with a unit, such as 250ms, 90s, 5m, 12h or 30d", what,
			maxPeriodSeconds)
	}
	return period, nil
}

// nanoseconds is period for a period in nanoseconds.
func (n node) nanoseconds(what string) (int64, error) {
	period, err := n.period(what)
	if err != nil {
		return 0, err
	}
	ns, _ := period.Nanoseconds(maxPeriodSeconds)
	return ns, nil
}

// formatPeriod writes a period in the largest unit in which it is whole, so that equal periods have equal
// texts.
func formatPeriod(p quota.Period) string {
	seconds, ns := p.Split()
	switch {
	case ns%1e6 != 0:
		micros := seconds*1e6 + ns/1e3
		return strings.TrimRight(fmt.Sprintf("%d.%03d", micros/1e3, micros%1e3), "0") + "ms"
	case ns != 0:
		return fmt.Sprintf("%dms", seconds*1e3+ns/1e6)
	}
	for _, unit := range []struct {
		seconds int64
		name    string
	}{{86400, "d"}, {3600, "h"}, {60, "m"}} {
		if seconds%unit.seconds == 0 {
			return fmt.Sprintf("%d%s", seconds/unit.seconds, unit.name)
		}
	}
	return fmt.Sprintf("%ds", seconds)
}

// readNetworks reads a list such as [10.0.0.0/8, "2001:db8::/32"].
func readNetworks(n node) (networks []netip.Prefix, err error) {
	items, err := n.items("cidr", MaxNetworks)
	if err != nil {
		return nil, err
	}
	for _, item := range items {
		text, err := item.text("an item of cidr")
		if err != nil {
			return nil, err
		}
		network, err := netip.ParsePrefix(text)
		switch {
		case err != nil:
			return nil, item.errorf("%q is not a network, such as 10.0.0.0/8, or 192.0.2.1/32 for one address", text)
		case network.Addr().Is4In6():
			return nil, item.errorf("%q must be written as a network of IPv4 addresses", text)
		case network != network.Masked():
			return nil, item.errorf("%q has bits set after its first %d; the network is %s", text, network.Bits(),
				network.Masked())
		}
		networks = append(networks, network)
	}
	return networks, nil
}

// readBan reads {after: 10, within: 10m, for: 15m, factor: 2, max: 24h}.
func readBan(n node) (*Ban, error) {
	values, err := n.fields("ban", "after", "within", "for", "factor", "max")
	if err != nil {
		return nil, err
	}
	for _, key := range []string{"after", "within", "for"} {
		if _, given := values[key]; !given {
			return nil, n.errorf("ban must have %s", key)
		}
	}
	after, err := values["after"].integer("after", 1, maxAfter)
	if err != nil {
		return nil, err
	}
	within, err := values["within"].period("within")
	if err != nil {
		return nil, err
	}
	ban := &Ban{Rule: standing.Rule{Factor: 1}}
	if ban.For, err = values["for"].nanoseconds("for"); err != nil {
		return nil, err
	}
	if ban.Refusals, err = window.NewLimit(after-1, within); err != nil {
		return nil, n.errorf("%v", err)
	}
	if factor, given := values["factor"]; given {
		if ban.Factor, err = factor.integer("factor", 1, maxBanFactor); err != nil {
			return nil, err
		}
	}
	if err := ban.readMax(n, values); err != nil {
		return nil, err
	}
	ban.text = fmt.Sprintf("after %d, within %s, for %s, factor %d, max %s", after, formatPeriod(within),
		formatNanoseconds(ban.For), ban.Factor, formatNanoseconds(ban.Max))
	return ban, nil
}

// readMax reads the longest ban, which need not be given if all bans last equally long.
func (b *Ban) readMax(n node, values map[string]node) (err error) {
	longest, given := values["max"]
	switch {
	case given:
		if b.Max, err = longest.nanoseconds("max"); err != nil {
			return err
		}
		if b.Max < b.For {
			return longest.errorf("max must be at least as long as for")
		}
	case b.Factor > 1:
		return n.errorf("a ban with a factor must have max, the length of the longest ban")
	default:
		b.Max = b.For
	}
	return nil
}

// formatNanoseconds is formatPeriod for a period in nanoseconds.
func formatNanoseconds(ns int64) string {
	if ns%1e9 == 0 {
		return formatPeriod(quota.Seconds(ns / 1e9))
	}
	return formatPeriod(quota.Period(-ns / 1e3))
}
