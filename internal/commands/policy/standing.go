package policy

import (
	"cellserver/internal/decide"
	policies "cellserver/internal/policy"
)

// standingKey returns the key of a subject's exemption, its ban and its refusals, which few subjects have.
func (f *Family) standingKey(p *decide.Part) []byte {
	return policies.AppendKey(nil, f.prefix, p.Policy, p.Subject, policies.StandingLabel)
}
