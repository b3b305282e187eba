package envoy

import (
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	pb "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
)

// Current has the configuration in force. A newer configuration is applied as a whole, or refused as a whole; if it is
// refused, the present one stays in force.
type Current struct {
	MergeDomains bool
	Log          *slog.Logger

	inForce atomic.Pointer[Config]
	failing atomic.Bool // the newest configuration was refused
	changed func()      // called when another is in force; may be nil
	mu      sync.Mutex  // held while a configuration is read and applied
}

// InForce returns the configuration in force, which is immutable; nil if none was accepted yet.
func (c *Current) InForce() *Config { return c.inForce.Load() }

// IsFailing reports whether the newest configuration was refused.
func (c *Current) IsFailing() bool { return c.failing.Load() }

// OnChange calls f, and again whenever another configuration is in force.
func (c *Current) OnChange(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed = f
	f()
}

// Receive applies the messages of a control plane, or returns the reason for which they are refused.
func (c *Current) Receive(messages []*pb.RateLimitConfig) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.replace(func() (*Config, []*Error, error) { return ParseMessages(messages, c.MergeDomains, c.InForce()) })
}

// Refuse notes that a configuration was refused before it could be read.
func (c *Current) Refuse(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.replace(func() (*Config, []*Error, error) { return nil, nil, err })
}

// replace puts a configuration in force, or refuses it, and logs that. c.mu must be locked.
func (c *Current) replace(read func() (*Config, []*Error, error)) error {
	next, warnings, err := read()
	if c.failing.Store(err != nil); err != nil {
		c.Log.Error("the configuration of Envoy's rate limits was refused: what was in force stays",
			"error", strings.ReplaceAll(err.Error(), "\n", "; "))
		return err
	}
	for _, warning := range warnings {
		c.Log.Warn("the configuration of Envoy's rate limits", "at", warning.Error())
	}
	if c.inForce.Store(next); c.changed != nil {
		c.changed()
	}
	c.Log.Info("the configuration of Envoy's rate limits is in force", "domains", next.Domains(), "limits", next.Limits())
	return nil
}
