package envoy

import (
	pb "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
)

// ParseMessages reads a configuration from messages of a control plane, as Parse does from files.
func ParseMessages(messages []*pb.RateLimitConfig, mergeDomains bool, before *Config) (*Config, []*Error, error) {
	b := newBuilder(mergeDomains)
	var wrong []error
	for _, m := range messages {
		root := domainValue{Domain: m.GetDomain(), Descriptors: descriptorValues(m.GetDescriptors(), 1)}
		if err := b.add(&root, place{file: m.GetName()}); err != nil {
			wrong = append(wrong, err)
		}
	}
	return b.finish(wrong, before)
}

// descriptorValues returns the values of descriptors at a depth, down to one level more than is allowed.
func descriptorValues(messages []*pb.RateLimitDescriptor, depth int) []descriptorValue {
	if depth > maxBelow+1 {
		return nil
	}
	values := make([]descriptorValue, len(messages))
	for i, d := range messages {
		values[i] = descriptorValue{
			Key: d.GetKey(), Value: d.GetValue(), Limit: limitValueOf(d.GetRateLimit()),
			Descriptors: descriptorValues(d.GetDescriptors(), depth+1),
			Shadow:      d.GetShadowMode(), Quota: d.GetQuotaMode(), Detailed: d.GetDetailedMetric(),
			Metadata: d.GetMetadata().AsMap(),
		}
	}
	return values
}

func limitValueOf(m *pb.RateLimitPolicy) *limitValue {
	if m == nil {
		return nil
	}
	v := &limitValue{Requests: &m.RequestsPerUnit, Unlimited: m.GetUnlimited(), Name: m.GetName()}
	if unit := m.GetUnit(); unit != pb.RateLimitUnit_UNKNOWN || !v.Unlimited {
		v.Unit = unit.String()
	}
	for _, r := range m.GetReplaces() {
		v.Replaces = append(v.Replaces, nameValue{r.GetName()})
	}
	return v
}
