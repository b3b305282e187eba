package policy

import (
	"slices"
	"strings"

	"cellserver/internal/limit"
	"cellserver/internal/standing"
)

// Plan is a set of limits that a subject may have in place of the limits of the policy. All plans of a policy have
// limits of the same labels, so that a subject whose plan changes keeps what it has used.
type Plan struct {
	Name   string
	Limits []Limit
}

// MaxPlans bounds the plans of a policy.
const MaxPlans = 32

// Plan returns the plan with a name; nil if the policy has none.
func (p *Policy) Plan(name string) *Plan {
	if i := slices.IndexFunc(p.Plans, func(plan Plan) bool { return plan.Name == name }); i >= 0 {
		return &p.Plans[i]
	}
	return nil
}

// PlanFor returns the treatment of a subject, given its standing and the treatment t that it would have without a plan.
// It returns t if an override decides about the subject, or if the policy does not have the subject's plan any more.
func (p *Policy) PlanFor(now int64, s *standing.State, t Treatment) Treatment {
	if s == nil || now >= s.Plan.Until || t.Override >= 0 || t.Effect != Limited {
		return t
	}
	if plan := p.Plan(s.Plan.Name); plan != nil {
		t.Limits, t.Plan = plan.Limits, plan.Name
	}
	return t
}

// LeaveOf returns how much of a limit a call leaves to others, given the size of the limit and the integer of LEAVE: a
// quantity, or -1 - p for p percent, rounded up.
func LeaveOf(leave, size int64) int64 {
	if leave >= 0 {
		return leave
	}
	percent := -1 - leave
	return size/100*percent + (size%100*percent+99)/100
}

// plans reads the plans of a policy, and the default plan, which subjects without a plan of their own have. The default
// plan takes the place of limits.
func (p *parser) plans(policy *Policy, values map[string]node) (err error) {
	all, given := values["plans"]
	usual, named := values["plan"]
	limits, limited := values["limits"]
	switch {
	case named && !given:
		return usual.errorf("a policy with plan must have plans")
	case named && limited:
		return limits.errorf("a policy must have limits or plan, and not both: " +
			"both are for subjects without a plan of their own")
	case !given:
		return nil
	}
	names, plans, err := all.entries("plans")
	if err != nil {
		return err
	}
	if len(names) > MaxPlans {
		return all.errorf("more than %d plans", MaxPlans)
	}
	for _, name := range names {
		if err := p.addPlan(policy, name, plans[name.Value]); err != nil {
			return err
		}
	}
	if named {
		if policy.DefaultPlan, err = usual.text("plan"); err != nil {
			return err
		}
		plan := policy.Plan(policy.DefaultPlan)
		if plan == nil {
			return usual.errorf("there is no plan %q", policy.DefaultPlan)
		}
		policy.Limits = plan.Limits
	}
	policy.Ahead = limit.NotAhead // tokens taken ahead would be spent without a look at the plan
	return policy.checkPlans(all)
}

func (p *parser) addPlan(policy *Policy, name, value node) (err error) {
	if err := checkName(name, name.Value); err != nil {
		return err
	}
	values, err := value.required("a plan", "limits")
	if err != nil {
		return err
	}
	plan := Plan{Name: name.Value}
	if plan.Limits, err = p.limits(values["limits"]); err == nil {
		policy.Plans = append(policy.Plans, plan)
	}
	return err
}

// checkPlans refuses plans whose limits have other labels than the limits of subjects without a plan.
func (p *Policy) checkPlans(n node) error {
	for _, plan := range p.Plans {
		if p.Limits != nil && !slices.EqualFunc(plan.Limits, p.Limits, sameLabel) {
			return n.errorf("plan %s has the limits %s, and subjects without a plan have %s: "+
				"all must have the same, in one order", plan.Name, labels(plan.Limits), labels(p.Limits))
		}
	}
	return nil
}

func labels(limits []Limit) string {
	var all []string
	for i := range limits {
		all = append(all, limits[i].Label())
	}
	return strings.Join(all, ", ")
}

// describePlans returns the plans as lines.
func (p *Policy) describePlans() (lines []string) {
	for _, plan := range p.Plans {
		lines = append(lines, plan.Name+": "+describeLimits(plan.Limits))
	}
	return lines
}

// plans compares the plans of a policy.
func (d *differences) plans(before, after *Policy) {
	for _, plan := range before.Plans {
		switch other := after.Plan(plan.Name); {
		case other == nil && after.DefaultPlan != "":
			d.addf("plan %s: removed: its subjects have plan %s", plan.Name, after.DefaultPlan)
		case other == nil:
			d.addf("plan %s: removed: its subjects have the limits of the policy", plan.Name)
		default:
			d.of = "plan " + plan.Name + ": "
			d.limits(plan.Limits, other.Limits)
			d.of = ""
		}
	}
	for _, plan := range after.Plans {
		if before.Plan(plan.Name) == nil {
			d.addf("plan %s: new: %s", plan.Name, describeLimits(plan.Limits))
		}
	}
	d.changed("plan", before.DefaultPlan, after.DefaultPlan)
}
