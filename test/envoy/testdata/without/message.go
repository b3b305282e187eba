package envoy

import pb "cellserver/internal/envoy/without"

func ParseMessages([]*pb.RateLimitConfig, bool, *Config) (*Config, []*Error, error) {
	panic("without gRPC")
}
