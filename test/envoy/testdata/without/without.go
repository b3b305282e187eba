// Package without has the names of messages, and no messages.
package without

type RateLimitConfig struct{}
type Struct struct{}

func NewStruct(map[string]any) (*Struct, error) { return nil, nil }
