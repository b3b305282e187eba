package client

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"cellserver/internal/option"
)

// MemoryLimit is a limit in bytes, or in percent of the available memory.
type MemoryLimit struct {
	Bytes   int64
	Percent int64 // if not 0, Bytes has no meaning
	Auto    bool  // the default is computed from maxmemory; Bytes and Percent have no meaning
}

// parseMemoryLimit parses a limit in redis.conf's syntax, such as 64mb or 5%. The errors are
// Redis's.
func parseMemoryLimit(text string) (m MemoryLimit, err error) {
	digits, percent := strings.CutSuffix(text, "%")
	if !percent {
		n, ok := option.ParseSize(text)
		if !ok {
			return m, errNotMemoryLimit
		}
		return MemoryLimit{Bytes: n}, nil
	}
	n, err := strconv.ParseUint(digits, 10, 31)
	switch {
	case err != nil:
		return m, errNotMemoryLimit
	case n > 100:
		return m, errors.New("percentage argument must be less or equal to 100")
	}
	return MemoryLimit{Percent: int64(n)}, nil
}

var errNotMemoryLimit = errors.New("argument must be a memory or percent value")

// String returns what CONFIG GET shows.
func (m MemoryLimit) String() string {
	switch {
	case m.Auto:
		return "auto"
	case m.Percent > 0:
		return strconv.FormatInt(m.Percent, 10) + "%"
	}
	return strconv.FormatInt(m.Bytes, 10)
}

// of returns the limit in bytes. Percent is a part of the available memory, which is 0 if it
// is unknown.
func (m MemoryLimit) of(available int64) int64 {
	if m.Percent > 0 && available > 0 {
		return max(available/100*m.Percent, MinMemoryLimit)
	}
	return m.Bytes
}

const (
	// MinMemoryLimit is the smallest limit that a percentage can give, in bytes: a client must be
	// able to connect to correct the setting.
	MinMemoryLimit = 4 << 20
	// DefaultClientPercent is the default of maxmemory-clients. A quarter leaves room for as much
	// memory in keys, and for as much again that the garbage collector has not freed yet.
	DefaultClientPercent = 25
	// By default, unauthenticated clients may use a sixteenth of maxmemory, but at least 1 MiB, or
	// 16 MiB if there is no maxmemory.
	unauthenticatedPart  = 16
	unauthenticatedBytes = 16 << 20
	minUnauthenticated   = unauthenticatedBytes / 16
	// maxRequestBytes bounds RequestLimit if maxmemory-clients is 0.
	maxRequestBytes = 256 << 20
)

// SetMaxMemory sets the limit on the memory of all clients. A percentage is of maxmemory, or
// without maxmemory, of the memory of the machine or container. UpdateLimits must be called to
// apply the limit.
func (r *Registry) SetMaxMemory(m MemoryLimit) { r.holdings.setting.Store(&m) }

// MemoryLimit returns the limit on the memory of all clients in bytes; 0 if there is none.
func (r *Registry) MemoryLimit() int64 { return r.holdings.limit.Load() }

// RequestLimit returns how many bytes the requests of a port on which clients are not evicted may
// hold together: half of maxmemory-clients. If that option is 0, the limit is half of maxmemory or,
// without maxmemory, of the memory of the machine or container, and at most 256 MiB.
func (r *Registry) RequestLimit() int64 {
	if limit := r.MemoryLimit(); limit > 0 {
		return limit / 2
	}
	if available := r.holdings.available.Load(); available > 0 {
		return min(max(available, MinMemoryLimit)/2, maxRequestBytes)
	}
	return maxRequestBytes
}

// SetMaxMemoryUnauthenticated sets the limit on the memory of all unauthenticated clients in the
// same way.
func (r *Registry) SetMaxMemoryUnauthenticated(m MemoryLimit) { r.unauthenticatedLimit.Store(&m) }

// UpdateLimits computes the limits in bytes from the settings, from maxmemory (0 if it is not set),
// and from the memory of the machine or container (0 if it is unknown).
func (r *Registry) UpdateLimits(maxMemory, system int64) {
	h := &r.holdings
	available := cmp.Or(maxMemory, system)
	h.available.Store(available)
	h.limit.Store(h.setting.Load().of(available))
	r.RetryEviction()
	switch m := *r.unauthenticatedLimit.Load(); {
	case !m.Auto:
		r.unauthenticated.setLimit(m.of(available))
	case maxMemory > 0:
		r.unauthenticated.setLimit(max(maxMemory/unauthenticatedPart, minUnauthenticated))
	default:
		r.unauthenticated.setLimit(unauthenticatedBytes)
	}
}

// MemoryLimitKind is the option.Kind of a MemoryLimit.
type MemoryLimitKind struct {
	To   *MemoryLimit
	Auto bool // the value auto is allowed, and 0 is not
}

func (k MemoryLimitKind) parse(text string) (MemoryLimit, error) {
	if k.Auto && text == "auto" {
		return MemoryLimit{Auto: true}, nil
	}
	m, err := parseMemoryLimit(text)
	if err == nil && k.Auto && m == (MemoryLimit{}) {
		err = errors.New("argument must not be 0")
	}
	return m, err
}

func (k MemoryLimitKind) Set(text string) error {
	m, err := k.parse(text)
	if err != nil {
		return errors.New("it must be a size, written like 65536, 512kb, 64mb or 1gb, or percent such as 25%")
	}
	*k.To = m
	return nil
}

func (k MemoryLimitKind) Check(text string) error {
	_, err := k.parse(text)
	return err
}

func (k MemoryLimitKind) String() string {
	if k.To.Percent == 0 && !k.To.Auto {
		return option.FormatSize(int(k.To.Bytes))
	}
	return k.To.String()
}

func (k MemoryLimitKind) Show() string { return k.To.String() }
func (k MemoryLimitKind) Type() string { return "size" }
func (k MemoryLimitKind) Range() string {
	if k.Auto {
		return "auto, a size, 1% to 100%"
	}
	return "a size, 0% to 100%"
}

// AvailableMemory returns the memory of the machine in bytes, or of the container if it has
// less; 0 if it is unknown.
func AvailableMemory() int64 {
	system, container := SystemMemory(), ContainerMemory()
	if container > 0 && (container < system || system == 0) {
		return container
	}
	return system
}

// SystemMemory returns the memory of the machine in bytes, 0 if it is unknown.
func SystemMemory() (bytes int64) {
	info, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	if _, err := fmt.Sscanf(string(info), "MemTotal: %d kB", &bytes); err != nil {
		return 0
	}
	return bytes << 10
}
